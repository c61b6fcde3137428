#include "command_line.h"

#include <getopt.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>

namespace trapline::tool {

namespace {

// dtrace(1)'s flags; a leading '+' would stop at the first argument, which dtrace does not do.
constexpr char kFlags[] = ":3:6:b:Bc:CD:ef:FGhHi:I:lL:m:n:o:p:P:qs:SU:vVwx:X:Z";

UsageError bad(std::string text) { return {std::move(text), true, kExitUsage}; }

std::optional<Pid> parse_pid(const char* text) {
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value <= 0 || value > 0x7fffffff)
    return std::nullopt;
  return Pid{static_cast<pid_t>(value)};
}

// Flags that are nothing but a name for an option.
bool add_option_flag(int flag, const char* value, CommandLine& command) {
  const auto add = [&](const char* name, bool with_value) {
    command.options.emplace_back(name,
                                 with_value ? std::optional<std::string>(value) : std::nullopt);
    return true;
  };
  switch (flag) {
    case 'b':
      return add("bufsize", true);
    case 'C':
      return add("cpp", false);
    case 'D':
    case 'I':
    case 'U':
      command.cpp_arguments.push_back(std::string("-") + static_cast<char>(flag) + value);
      return true;
    case 'F':
      return add("flowindent", false);
    case 'H':
      return add("cpphdrs", false);
    case 'L':
      return add("libdir", true);
    case 'q':
      return add("quiet", false);
    case 'w':
      return add("destructive", false);
    case 'X':
      return add("stdc", true);
    default:
      return false;
  }
}

// Options that may be given several times and end up as arguments of cpp.
std::optional<std::string> cpp_flag(const std::string& option) {
  if (option == "define") return "-D";
  if (option == "undef") return "-U";
  if (option == "incdir") return "-I";
  return std::nullopt;
}

void add_x_option(const std::string& text, CommandLine& command) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == std::string::npos) {
    command.options.emplace_back(name, std::nullopt);
  } else if (name == "cppargs") {
    std::istringstream words(text.substr(equals + 1));
    for (std::string word; words >> word;) command.cpp_arguments.push_back(word);
  } else if (const auto flag = cpp_flag(name)) {
    command.cpp_arguments.push_back(*flag + text.substr(equals + 1));
  } else {
    command.options.emplace_back(name, text.substr(equals + 1));
  }
}

}  // namespace

ParsedCommandLine parse_command_line(const std::string& name, int argc, char** argv) {
  ParsedCommandLine parsed;
  CommandLine& command = parsed.command;
  int modes = 0;
  if (argc <= 1) {
    parsed.error = bad("");
    return parsed;
  }
  opterr = 0;
  optind = 1;
  for (int flag; (flag = getopt(argc, argv, kFlags)) != -1;) {
    if (add_option_flag(flag, optarg, command)) continue;
    switch (flag) {
      case '3':
      case '6':
        if (flag == '3' || std::string(optarg) != "4") {
          parsed.error = bad(flag == '3' && std::string(optarg) == "2"
                                 ? "-32 is not offered: Trapline traces 64-bit processes only\n"
                                 : std::string("illegal option -- ") + static_cast<char>(flag) +
                                       optarg + "\n");
          return parsed;
        }
        break;
      case 'B':
        parsed.error =
            UsageError{std::string("-") + static_cast<char>(flag) + " is not offered yet\n", false,
                       kExitError};
        return parsed;
      case 'c':
        command.commands.emplace_back(optarg);
        break;
      case 'e':
        command.compile_only = true;
        break;
      case 'f':
      case 'i':
      case 'm':
      case 'n':
      case 'P':
      case 's':
        command.sources.push_back({static_cast<SourceFlag>(flag), optarg});
        break;
      case 'G':
        command.mode = Mode::kObject;
        ++modes;
        break;
      case 'h':
        command.mode = Mode::kHeader;
        ++modes;
        break;
      case 'l':
        command.mode = Mode::kList;
        command.allow_unmatched = true;
        ++modes;
        break;
      case 'o':
        command.output = optarg;
        break;
      case 'p':
        if (const auto pid = parse_pid(optarg)) {
          command.pids.push_back(*pid);
        } else {
          parsed.error =
              UsageError{std::string("invalid pid: ") + optarg + "\n", false, kExitError};
          return parsed;
        }
        break;
      case 'S':
        command.show_plan = true;
        break;
      case 'v':
        ++command.verbose;
        break;
      case 'V':
        command.mode = Mode::kVersion;
        ++modes;
        break;
      case 'x':
        add_x_option(optarg, command);
        break;
      case 'Z':
        command.allow_unmatched = true;
        break;
      case ':':
        parsed.error = bad(std::string("option requires an argument -- '") +
                           static_cast<char>(optopt) + "'\n");
        return parsed;
      default:
        if (optind > 1 && std::string(argv[optind - 1]) == "--help") {
          command.mode = Mode::kHelp;
          return parsed;
        }
        parsed.error = bad(std::string("invalid option -- '") + static_cast<char>(optopt) + "'\n");
        return parsed;
    }
  }
  for (; optind < argc; ++optind) command.arguments.emplace_back(argv[optind]);
  if (modes > 1) {
    parsed.error = UsageError{"only one of the [-GhlV] options can be specified at a time\n", false,
                              kExitUsage};
  }
  const bool has_processes = !command.pids.empty() || !command.commands.empty();
  if (!parsed.error && (command.mode == Mode::kHeader || command.mode == Mode::kObject) &&
      has_processes) {
    parsed.error = UsageError{std::string(command.mode == Mode::kHeader ? "-h" : "-G") +
                                  " takes no process: -c and -p have no meaning with it\n",
                              false, kExitUsage};
  }
  (void)name;
  return parsed;
}

std::string usage(const std::string& name) {
  const std::string action = "[[ predicate ] action ]";
  return "Usage: " + name +
         " [-64] [-CeFGhHlqSvVwZ] [-b bufsz] [-c cmd] [-D name[=def]]\n"
         "\t[-I path] [-L path] [-o output] [-p pid] [-s script] [-U name]\n"
         "\t[-x opt[=val]] [-X a|c|s|t]\n\n"
         "\t[-P provider " +
         action +
         "]\n"
         "\t[-m [ provider: ] module " +
         action +
         "]\n"
         "\t[-f [[ provider: ] module: ] func " +
         action +
         "]\n"
         "\t[-n [[[ provider: ] module: ] func: ] name " +
         action +
         "]\n"
         "\t[-i probe-id " +
         action +
         "] [ args ... ]\n\n"
         "\tpredicate -> '/' D-expression '/'\n"
         "\t   action -> '{' D-statements '}'\n\n"
         "\t-b  set trace buffer size\n"
         "\t-c  run the command, trace it, and end when it ends\n"
         "\t-C  run cpp(1) on script files\n"
         "\t-D  define a symbol for cpp\n"
         "\t-e  compile, show what matches, and end before anything is enabled\n"
         "\t-f  enable or list the probes of a function\n"
         "\t-F  indent output by function entry and return\n"
         "\t-G  write the object file of a program's own probes\n"
         "\t-h  write the header of a program's own probes\n"
         "\t-H  print the files that cpp includes\n"
         "\t-i  enable or list the probe with an ID\n"
         "\t-I  add a folder to cpp's search path\n"
         "\t-l  list probes\n"
         "\t-L  add a folder to the library search path\n"
         "\t-m  enable or list the probes of a module\n"
         "\t-n  enable or list probes by name\n"
         "\t-o  append the output to a file\n"
         "\t-p  trace the process with this ID\n"
         "\t-P  enable or list the probes of a provider\n"
         "\t-q  quiet: print only what the program prints\n"
         "\t-s  run a D script\n"
         "\t-S  print the compiled plan\n"
         "\t-U  undefine a symbol for cpp\n"
         "\t-v  verbose: what matched, how sites are reached\n"
         "\t-V  print the version\n"
         "\t-w  permit destructive actions\n"
         "\t-x  set an option\n"
         "\t-X  set cpp's ISO C conformance\n"
         "\t-Z  permit probe descriptions that match nothing\n";
}

}  // namespace trapline::tool
