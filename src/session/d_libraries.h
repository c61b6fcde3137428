// D libraries: the files *.d of the folders of -L (option libdir) and of option syslibdir, whose
// types, translators and inlines a program may use.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "plan/options.h"

namespace trapline::session {

struct DLibrary {
  std::string path;
  std::string text;
};

// All of them, each after those that it depends on, else in the order of the folders and of their
// names. Left out, as DTrace does: those that depend on a provider that there is not or on a module
// of the kernel, and what depends on these. With option nolibs: none.
// Errors: kOs (a folder or a file cannot be read), kBadInput (a library that does not exist, or a
// circle).
Result<std::vector<DLibrary>> read_libraries(const plan::Options& options);

}  // namespace trapline::session
