#include "trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "heap_pages.h"
#include "messages.h"
#include "refusal_report.h"
#include "report/json_output.h"
#include "report/text_output.h"
#include "session/session.h"
#include "setup.h"
#include "signals.h"

namespace trapline::tool {

namespace {

std::unique_ptr<report::Output> make_output(const plan::Program& program,
                                            const plan::Options& options, report::ByteSink& out,
                                            report::ByteSink& err) {
  report::PrintOptions base;
  base.testing = std::getenv("_DTRACE_TESTING") != nullptr;
  base.program_name = kMessageName;
  report::PrintOptions print = report::print_options(options, std::move(base));
  if (options.text("format") == "json")
    return std::make_unique<report::JsonOutput>(program, out, std::move(print));
  return std::make_unique<report::TextOutput>(program, out, err, std::move(print));
}

// "description 'BEGIN ' matched 1 probe", one a program of the command line.
std::uint32_t report_matches(const CommandLine& command, const plan::Options& options,
                             const plan::Program& program, const session::Enabling& enabling) {
  std::uint32_t total = 0;
  for (std::uint32_t s = 0; s < command.sources.size(); ++s) {
    std::uint32_t matches = 0;
    for (std::uint32_t c = 0; c < program.clauses.size(); ++c) {
      if (program.clauses[c].source == s) matches += enabling.matches_by_clause[c];
    }
    total += matches;
    if (options.flag("quiet")) continue;
    const SourceArgument& source = command.sources[s];
    const bool script = source.flag == SourceFlag::kScript;
    const std::string name =
        script ? source.text : source.text.substr(0, source.text.find_first_of("{/;"));
    say(report::matched_message(script ? "script" : "description", name, matches));
  }
  return total;
}

void report_refusals(const CommandLine& command, const std::vector<session::Refusal>& refusals) {
  const Detail detail = command.verbose > 0 ? Detail::kEveryPlace : Detail::kSummary;
  for (const std::string& line : describe_refusals(refusals, detail)) say(line);
}

void report_notes(const CommandLine& command, session::Session& session) {
  for (const std::string& note : session.take_notes()) say(note);
  for (const std::string& note : session.take_verbose_notes()) {
    if (command.verbose > 0) say(note);
  }
  report_refusals(command, session.take_new_refusals());
}

void report_verbose(session::Session& session) {
  for (const std::string& note : session.enabling().notes) say(note);
  for (std::size_t i = 0; i < session.target_count(); ++i) {
    for (std::size_t m = 0; m < session.tracee(i).modules().size(); ++m) {
      const auto table = session.tracee(i).modules().symbol_table(m);
      const symbols::Module& module = session.tracee(i).modules().module(m);
      if (!module.file_note.empty()) say(fmt::format("{}: {}", module.path, module.file_note));
      if (!table || !(*table)->sources().stripped()) continue;
      say(
          fmt::format("{} is stripped: only its {} exported functions have names; a debug package "
                      "(for libc: libc6-dbg) brings the others",
                      module.name, (*table)->symbols().size()));
    }
  }
}

void report_stops(session::Session& session) {
  using Micros = std::chrono::duration<double, std::micro>;
  for (std::size_t i = 0; i < session.target_count(); ++i) {
    const session::Tracee& tracee = session.tracee(i);
    std::string each;
    for (const session::Stop& stop : tracee.stops()) {
      each += fmt::format("{}{} {:.0f}", each.empty() ? "" : ", ", stop.purpose,
                          Micros(stop.duration).count());
    }
    if (tracee.stop_count() > tracee.stops().size()) each += ", ...";
    say(fmt::format("pid {} was stopped {} times, {:.0f} us at most ({})", tracee.pid().value,
                    tracee.stop_count(), Micros(tracee.longest_stop()).count(), each));
  }
}

// Runs until the program, the processes or the user end it; then takes everything back and prints
// what is left.
Result<> run(const CommandLine& command, session::Session& session, Signals& signals,
             const Front& front, report::ByteSink& out) {
  const bool testing = std::getenv("_DTRACE_TESTING") != nullptr;
  Result<> failed;
  while (session.running() && signals.interrupts() == 0 && !front.is_gone()) {
    failed = session.step(signals.fd());
    if (!failed) break;
    report_notes(command, session);
    signals.look();
    if (signals.take_print_request()) {
      failed = session.print_now();
      if (!failed) break;
    }
  }
  if (signals.interrupts() > 0 && !testing && failed) failed = out.write("\n");
  const Result<> stopped = session.stop();
  report_notes(command, session);
  signals.look();
  if (!failed) return failed;
  if (!stopped) return stopped;
  // Impatient, or gone: nothing more is printed.
  if (signals.interrupts() > 1 || front.is_gone()) return {};
  return session.finish();
}

}  // namespace

int trace(const CommandLine& command, const Front& front) {
  use_large_pages();
  auto signals = Signals::take();
  if (!signals) return say(signals.error()), kExitError;
  const auto options = read_options(command);
  if (!options) return say(options.error()), kExitError;
  auto processes = find_processes(command, *signals);
  if (!processes) return say(processes.error()), kExitError;
  if (command.sources.empty() && command.compile_only) return kExitSuccess;
  if (command.sources.empty()) return say("no probes specified"), kExitError;

  const std::optional<Pid> target =
      processes->empty() ? std::nullopt : std::optional<Pid>(processes->front().pid());
  auto compiled = compile_programs(command, *options, target, front.invoker());
  if (!compiled) return kExitError;
  if (command.show_plan) std::fputs(plan::to_text(*compiled->program).c_str(), stderr);
  const auto named = add_named_processes(*compiled->program, *processes);
  if (!named) return say(named.error()), kExitError;

  auto file = OutputFile::open(command.output);
  if (!file) return say(file.error()), kExitError;
  report::FileSink out = file->sink();
  report::FileSink err(stderr, "<stderr>");
  const auto output = make_output(*compiled->program, compiled->options, out, err);

  session::Session session(*compiled->program, compiled->options, std::move(*processes), *output);
  session.set_invoker(front.invoker());
  session.set_ledger(&front.ledger());
  const auto found = session.find();
  if (!found) return say(found.error()), kExitError;
  if (report_unmatched(command, compiled->options, *compiled->program, session.enabling()))
    return kExitError;
  if (command.compile_only) return kExitSuccess;
  const std::uint32_t matched =
      report_matches(command, compiled->options, *compiled->program, session.enabling());
  if (command.verbose > 0) report_verbose(session);
  if (matched == 0 && !command.allow_unmatched && !compiled->options.flag("zdefs")) {
    return say("no probes matched"), kExitError;
  }

  front.step_aside();
  if (const auto started = session.start(); !started) {
    say(started.error());
    (void)session.stop();
    return kExitError;
  }
  report_refusals(command, session.refusals());
  if (compiled->options.flag("destructive") && !compiled->options.flag("quiet"))
    say("allowing destructive actions");
  const auto ran = run(command, session, *signals, front, out);
  if (command.verbose > 0) report_stops(session);
  if (!ran) return say(ran.error()), kExitError;
  return session.exit_status();
}

}  // namespace trapline::tool
