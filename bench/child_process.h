// A child process that is spoken with over its standard streams.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace trapline::bench {

class ChildProcess {
 public:
  // `preload`: a library for LD_PRELOAD, or empty. The process dies with this one. Check running()
  // for success.
  explicit ChildProcess(const std::vector<std::string>& command, const std::string& preload = {});
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();  // kills it if it still runs

  pid_t pid() const { return pid_; }
  void write_line(const std::string& line);
  // The next line of its output, without newline; nullopt: its end, or the time ran out.
  std::optional<std::string> read_line(std::chrono::milliseconds limit);
  // Reads lines until one starts with `prefix`, which it returns.
  std::optional<std::string> read_until(const std::string& prefix, std::chrono::milliseconds limit);
  void signal(int number);
  // Reads its output to the end and waits for its end; its exit status, or -1 after the time limit.
  int wait(std::chrono::milliseconds limit);
  const std::string& rest() const { return rest_; }  // what wait() read
  std::string errors();                              // its standard error so far

 private:
  pid_t pid_ = -1;
  Fd input_;
  Fd output_;
  Fd errors_;
  std::string pending_;
  std::string rest_;
};

}  // namespace trapline::bench
