#include "serve/traced.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>

#include "report/json_text.h"
#include "report/json_values.h"
#include "report/sink.h"
#include "report/text_output.h"
#include "target/process.h"

namespace trapline::serve {

namespace {

constexpr std::string_view kMessageName = "dtrace";

Failure not_now(std::string text) { return {Kind::kState, std::move(text), {}}; }
Failure no_program() { return not_now("no program has been compiled"); }

std::string_view rule_name(target::PermissionRule rule) {
  switch (rule) {
    case target::PermissionRule::kOwner:
      return "owner";
    case target::PermissionRule::kYama:
      return "yama";
    case target::PermissionRule::kTracer:
      return "tracer";
    case target::PermissionRule::kOther:
      break;
  }
  return "other";
}

std::string diagnostic_json(const session::PlacedDiagnostic& placed) {
  const diag::Diagnostic& d = placed.diagnostic;
  const bool error = d.severity == diag::Severity::kError;
  return std::string(R"({"severity":)") + (error ? R"("error")" : R"("warning")") + R"(,"tag":)" +
         report::json_message(d.tag) + R"(,"file":)" + report::json_message(placed.file) +
         R"(,"line":)" + std::to_string(placed.line) + R"(,"column":)" +
         std::to_string(placed.column) + R"(,"text":)" + report::json_message(d.text) +
         R"(,"hint":)" + report::json_message(d.hint) + "}";
}

using Diagnostics = std::vector<session::PlacedDiagnostic>;

std::string diagnostics_json(const Diagnostics& diagnostics) {
  std::string list = "\"diagnostics\":[";
  for (const session::PlacedDiagnostic& placed : diagnostics) {
    if (&placed != diagnostics.data()) list += ',';
    list += diagnostic_json(placed);
  }
  return list + ']';
}

Failure mistakes(const Diagnostics& diagnostics) {
  const auto first = std::ranges::find(diagnostics, diag::Severity::kError,
                                       [](const auto& d) { return d.diagnostic.severity; });
  std::string message = "the program has mistakes";
  if (first != diagnostics.end()) {
    message = first->file.empty() ? "" : first->file + ":";
    if (first->line != 0) message += std::to_string(first->line) + ":";
    if (first->column != 0) message += std::to_string(first->column) + ":";
    message += (message.empty() ? "" : " ") + first->diagnostic.text;
  }
  return {Kind::kCompile, std::move(message), diagnostics_json(diagnostics)};
}

// Descriptions that match nothing are mistakes, unless zdefs permits them.
Diagnostics unmatched(const session::Enabling& enabling, bool permitted, const std::string& file) {
  Diagnostics diagnostics;
  const auto add = [&](std::uint32_t line, std::string text) {
    session::PlacedDiagnostic& placed = diagnostics.emplace_back();
    placed.diagnostic.tag = "PDESC_ZERO";
    placed.diagnostic.text = std::move(text);
    placed.file = file;
    placed.line = line;
  };
  for (const session::Unmatched& u : enabling.unmatched) {
    if (!permitted || u.unsupported) add(u.description.line, session::unmatched_text(u));
  }
  if (diagnostics.empty() && enabling.probes.empty() && !permitted) add(0, "no probes specified");
  return diagnostics;
}

std::string refusal_json(const session::Refusal& refusal) {
  const plan::ProbeName& p = refusal.probe;
  return R"({"probe":)" +
         report::json_message(p.provider + ":" + p.module + ":" + p.function + ":" + p.name) +
         R"(,"address":)" + report::json_unsigned(refusal.address) + R"(,"reason":)" +
         report::json_message(refusal.reason) + R"(,"detail":)" +
         report::json_message(refusal.detail) + "}";
}

std::string refusals_json(const std::vector<session::Refusal>& refusals) {
  std::string list = "[";
  for (const session::Refusal& refusal : refusals) {
    if (list.size() > 1) list += ',';
    list += refusal_json(refusal);
  }
  return list + ']';
}

report::PrintOptions print_options(const plan::Options& options) {
  report::PrintOptions base;
  base.program_name = kMessageName;
  return report::print_options(options, std::move(base));
}

}  // namespace

Failure failure_about(Pid pid, const Error& error) {
  Failure failure = failure_of(error);
  if (failure.kind == Kind::kPermission)
    failure.data = "\"rule\":\"" + std::string(rule_name(target::permission_rule(pid))) + "\"";
  return failure;
}

Traced::Loaded::Loaded(session::CompiledProgram program, const Settings& settings, Channel& channel)
    : compiled(std::move(program)),
      print(print_options(compiled.options)),
      feed(settings.id, *compiled.program, print, settings.records, channel) {}

Traced::Traced(const Settings& settings, session::Tracee tracee, Channel& channel)
    : settings_(settings),
      channel_(channel),
      pid_(tracee.pid()),
      let_run_(!tracee.launched()),
      tracee_(std::move(tracee)) {
  if (tracee_->launched()) child_ = pid_;
}

Traced::~Traced() { (void)close(); }

Failure Traced::failure(const Error& error) const { return failure_about(pid_, error); }

// -------------------------------------------------------------------------------------------------
// compile

// The process comes back from the program that was loaded, if one was.
Result<> Traced::unload() {
  if (!loaded_) return {};
  TL_TRY_ASSIGN(std::vector<session::Tracee> tracees, loaded_->session->release_tracees());
  tracee_.emplace(std::move(tracees.front()));
  loaded_.reset();
  return {};
}

Answer Traced::compile(const Compile& request) {
  if (loaded_ && loaded_->state == State::kRunning)
    return std::unexpected(not_now("the session is running: stop it first"));
  plan::Options options;
  for (const auto& [name, value] : request.options) {
    const auto set = options.set(name, value);
    if (!set) return std::unexpected(failure_of(set.error().within("option " + name)));
  }
  if (const auto unloaded = unload(); !unloaded) return std::unexpected(failure(unloaded.error()));

  session::CompileInput input;
  input.programs.push_back({session::ProgramKind::kInline, request.text, request.name});
  input.arguments = request.arguments;
  input.target = pid_;
  input.message_name = kMessageName;
  session::CompileOutput output = session::compile_programs(input, options);
  if (!output.compiled) return std::unexpected(mistakes(output.diagnostics));
  Answer answer = load(request, std::move(*output.compiled));
  if (!answer) return answer;
  return "{" + *answer + "," + diagnostics_json(output.diagnostics) + "}";
}

// Matches and makes the machine code; members of the answer.
Answer Traced::load(const Compile& request, session::CompiledProgram compiled) {
  auto loaded = std::make_unique<Loaded>(std::move(compiled), settings_, channel_);
  std::vector<session::Tracee> tracees;
  tracees.push_back(std::move(*tracee_));
  tracee_.reset();
  loaded->session = std::make_unique<session::Session>(
      *loaded->compiled.program, loaded->compiled.options, std::move(tracees), loaded->feed);
  loaded_ = std::move(loaded);
  session::Session& session = *loaded_->session;
  loaded_->feed.set_clock([&session](std::uint64_t stamp) { return session.nanoseconds(stamp); });
  session.set_mute_offset(settings_.mute_offset);
  session.set_ledger(settings_.ledger);

  const auto reject = [&](Failure reason) -> Answer {
    const auto unloaded = unload();
    return std::unexpected(unloaded ? std::move(reason) : failure(unloaded.error()));
  };
  if (const auto found = session.find(); !found) return reject(failure(found.error()));
  const session::Enabling& enabling = session.enabling();
  const Diagnostics diagnostics =
      unmatched(enabling, loaded_->compiled.options.flag("zdefs"), request.name);
  if (!diagnostics.empty()) return reject(mistakes(diagnostics));
  if (const auto made = session.compile(); !made) return reject(failure(made.error()));
  return "\"matched\":" + std::to_string(enabling.probes.size()) +
         ",\"notes\":" + json_list(enabling.notes);
}

// -------------------------------------------------------------------------------------------------
// start and stop

Answer Traced::start() {
  if (!loaded_) return std::unexpected(no_program());
  if (loaded_->state == State::kRunning)
    return std::unexpected(not_now("the session is running already"));
  session::Session& session = *loaded_->session;
  if (const auto started = session.start(); !started)
    return std::unexpected(give_up(*loaded_, failure(started.error())));
  let_run_ = true;
  loaded_->state = State::kRunning;
  due_ = LoopClock::now() + session.time_to_wait();
  look_at_end();
  return "{\"armed\":" + std::to_string(session.armed_count()) +
         ",\"refused\":" + refusals_json(session.refusals()) +
         ",\"notes\":" + json_list(session.take_notes()) + "}";
}

// What was put in place so far is taken back. A command cannot be left half-way to its start.
Failure Traced::give_up(Loaded& loaded, Failure reason) {
  (void)loaded.session->stop();
  if (!let_run_) loaded.session->tracee(0).kill_launched();
  return reason;
}

Answer Traced::stop() {
  if (!loaded_) return std::unexpected(no_program());
  if (loaded_->state != State::kRunning) return "{\"notes\":[]}";
  loaded_->state = State::kStopped;
  due_.reset();
  const auto stopped = loaded_->session->stop();
  loaded_->feed.tell_drops();
  if (!stopped) return std::unexpected(failure(stopped.error()));
  return "{\"notes\":" + json_list(loaded_->session->take_notes()) + "}";
}

Answer Traced::close() {
  Answer answer = "{}";
  if (!let_run_) {
    let_run_ = true;
    if (tracee_) tracee_->kill_launched();
    if (loaded_) loaded_->session->tracee(0).kill_launched();
  } else if (loaded_ && loaded_->state == State::kRunning) {
    if (Answer stopped = stop(); !stopped) answer = std::move(stopped);
  }
  due_.reset();
  loaded_.reset();
  tracee_.reset();
  return answer;
}

// -------------------------------------------------------------------------------------------------
// data

std::string_view Traced::name_of(State state) {
  switch (state) {
    case State::kCompiled:
      return "compiled";
    case State::kRunning:
      return "running";
    case State::kStopped:
      return "stopped";
    case State::kEnded:
      break;
  }
  return "ended";
}

Answer Traced::snapshot(const TakeSnapshot& request) {
  if (!loaded_) return std::unexpected(no_program());
  session::Session& session = *loaded_->session;
  if (const auto drained = session.drain_now(); !drained)
    return std::unexpected(failure(drained.error()));
  look_at_end();
  const plan::Program& program = *loaded_->compiled.program;
  std::string out = "{\"aggregations\":[";
  for (std::uint32_t i = 0; i < program.aggregations.size(); ++i) {
    if (i != 0) out += ',';
    out += "{" + report::json_aggregation(program, i, session.store(), loaded_->print.sort) + "}";
  }
  out += "],\"drops\":" + loaded_->feed.drops_so_far() + ",\"state\":\"" +
         std::string(name_of(loaded_->state)) + "\"";
  if (request.text) {
    report::StringSink text;
    report::StringSink messages;
    (void)report::TextOutput(program, text, messages, loaded_->print).finish(session.store());
    out += ",\"text\":" + report::json_message(text.text());
  }
  return out + "}";
}

Answer Traced::clear() {
  if (!loaded_) return std::unexpected(no_program());
  session::Session& session = *loaded_->session;
  if (const auto drained = session.drain_now(); !drained)
    return std::unexpected(failure(drained.error()));
  look_at_end();
  const auto count = static_cast<std::uint32_t>(loaded_->compiled.program->aggregations.size());
  for (std::uint32_t i = 0; i < count; ++i) session.store().truncate(i, std::nullopt);
  return "{}";
}

// -------------------------------------------------------------------------------------------------
// the loop

std::vector<int> Traced::event_fds() const {
  if (!loaded_ || loaded_->state != State::kRunning) return {};
  return loaded_->session->event_fds();
}

// A program that has called exit() is seen to at once.
void Traced::look_at_end() {
  if (loaded_->state == State::kRunning && !loaded_->session->running()) due_ = LoopClock::now();
}

void Traced::work() {
  if (!loaded_ || loaded_->state != State::kRunning) return;
  session::Session& session = *loaded_->session;
  const auto worked = session.running() ? session.work() : Result<>();
  for (const std::string& note : session.take_notes()) loaded_->feed.note(note);
  for (const session::Refusal& refusal : session.take_new_refusals()) {
    loaded_->feed.note(session::full_name(refusal.probe) +
                       " in a module that was loaded later: " + refusal.reason);
  }
  if (!worked || !session.running()) {
    conclude(*loaded_, worked ? nullptr : &worked.error());
    return;
  }
  due_ = LoopClock::now() + session.time_to_wait();
}

void Traced::conclude(Loaded& loaded, const Error* failed) {
  due_.reset();
  loaded.state = State::kEnded;
  session::Session& session = *loaded.session;
  const auto stopped = session.stop();
  for (const std::string& note : session.take_notes()) loaded.feed.note(note);
  if (failed == nullptr && !stopped) failed = &stopped.error();
  std::string members;
  if (failed != nullptr) {
    members = R"("reason":"error","status":0,"text":)" + report::json_message(failed->text());
  } else if (session.exited()) {
    members = R"("reason":"exit","status":)" + std::to_string(session.exit_status()) +
              R"x(,"text":"the program called exit()")x";
  } else {
    members = end_of_target(session.tracee(0));
  }
  loaded.feed.ended(members);
}

// The status of a process that is not our child is nobody's to know.
std::string Traced::end_of_target(const session::Tracee& tracee) const {
  std::string text = "process " + std::to_string(pid_.value) + " has ended";
  int status = 0;
  if (const auto waited = tracee.exit_status()) {
    if (WIFEXITED(*waited)) {
      status = WEXITSTATUS(*waited);
      text += " with status " + std::to_string(status);
    } else if (WIFSIGNALED(*waited)) {
      status = 128 + WTERMSIG(*waited);
      text += std::string(" by a signal: ") + ::strsignal(WTERMSIG(*waited));
    }
  }
  return R"("reason":"target","status":)" + std::to_string(status) + R"(,"text":)" +
         report::json_message(text);
}

}  // namespace trapline::serve
