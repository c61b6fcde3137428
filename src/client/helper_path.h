// Which program is the helper.

#pragma once

#include <string>
#include <vector>

#include "client/failure.h"

namespace trapline::client {

// What the choice depends on, so that it can be tested.
struct HelperSearch {
  const char* command = nullptr;  // TRAPLINE_COMMAND; nullptr or "": not set
  std::string library;            // the path of this library; "": not known
  const char* path = nullptr;     // PATH; nullptr: not to be searched
  bool debug = false;             // TRAPLINE_DEBUG is set: the helper's messages are wanted
};

// Of this process. In a set-user-ID program no variable is believed.
HelperSearch this_process_search();

// The first that is an executable file; TRAPLINE_COMMAND alone, if it is set. NO_HELPER: none; the
// text lists where it was looked for.
Outcome<std::string> find_helper(const HelperSearch& search);

// The environment for the helper: that of this process without what makes the loader put the
// program's own libraries into it (LD_PRELOAD, LD_AUDIT).
std::vector<char*> helper_environment(char** environment);

}  // namespace trapline::client
