// trapline: DTrace for the processes one owns, on Linux.

#include <cstdio>
#include <string>

#include "command_line.h"
#include "heap_pages.h"
#include "messages.h"
#include "trace.h"

namespace {

#ifndef TRAPLINE_VERSION
#error "TRAPLINE_VERSION is set by the build"
#endif

using namespace trapline::tool;

int print_version(int verbose) {
  std::printf("%.*s: Trapline D 2.0 (trapline %s)\n", static_cast<int>(kMessageName.size()),
              kMessageName.data(), TRAPLINE_VERSION);
  if (verbose > 0)
    std::printf("This is Trapline %s, whose language is D as of Oracle DTrace 2.0\n",
                TRAPLINE_VERSION);
  return kExitSuccess;
}

}  // namespace

int main(int argc, char** argv) {
  use_large_pages();
  const ParsedCommandLine parsed = parse_command_line("trapline", argc, argv);
  if (parsed.error) {
    if (!parsed.error->text.empty()) say(parsed.error->text);
    if (parsed.error->show_usage) std::fputs(usage("trapline").c_str(), stderr);
    return parsed.error->exit_status;
  }
  switch (parsed.command.mode) {
    case Mode::kHelp:
      std::fputs(usage("trapline").c_str(), stdout);
      return kExitSuccess;
    case Mode::kVersion:
      return print_version(parsed.command.verbose);
    case Mode::kList:
      return list(parsed.command);
    case Mode::kTrace:
      return trace(parsed.command);
  }
  return kExitError;
}
