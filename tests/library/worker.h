// The helper's second process, which does the work: the child of the one that a session names.

#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

inline pid_t worker_of(pid_t helper) {
  const std::string id = std::to_string(helper);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  pid_t worker = 0;
  file >> worker;
  return worker;
}
