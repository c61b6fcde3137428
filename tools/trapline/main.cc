// trapline: DTrace for the processes one owns, on Linux.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "command_line.h"
#include "guard.h"
#include "heap_pages.h"
#include "messages.h"
#include "provider_files.h"
#include "serve/serve.h"
#include "trace.h"

namespace {

#ifndef TRAPLINE_VERSION
#error "TRAPLINE_VERSION is set by the build"
#endif

using namespace trapline::tool;

int print_version(int verbose) {
  std::printf("%.*s: Trapline %s, D 2.0\n", static_cast<int>(kMessageName.size()),
              kMessageName.data(), TRAPLINE_VERSION);
  if (verbose > 0)
    std::printf("This is Trapline %s, whose language is D as of Oracle DTrace 2.0\n",
                TRAPLINE_VERSION);
  return kExitSuccess;
}

// trapline serve [--socket PATH]
int serve(int argc, char** argv) {
  trapline::serve::ServeOptions options;
  options.version = TRAPLINE_VERSION;
  if (argc == 4 && std::string_view(argv[2]) == "--socket") {
    options.socket = argv[3];
  } else if (argc != 2) {
    std::fputs("Usage: trapline serve [--socket PATH]\n", stderr);
    return kExitUsage;
  }
  return run_guarded(Role::kServer, [&](const Front& front) {
    if (::isatty(STDIN_FILENO) == 0) front.step_aside();
    trapline::serve::ServeOptions shared = options;
    shared.ledger = &front.ledger();
    const auto served = trapline::serve::serve(shared);
    if (!served) say(served.error());
    return served ? kExitSuccess : kExitError;
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "serve") return serve(argc, argv);
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
      use_large_pages();
      return list(parsed.command);
    case Mode::kHeader:
      return write_header(parsed.command);
    case Mode::kObject:
      return write_object(parsed.command);
    case Mode::kTrace:
      return run_guarded(Role::kCommand,
                         [&](const Front& front) { return trace(parsed.command, front); });
  }
  return kExitError;
}
