#include "client/session.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "client/decode.h"
#include "client/helper_path.h"
#include "client/helper_process.h"
#include "client/syscalls.h"

namespace trapline::client {
namespace {

// How many lines one pump takes: a flood of records must not keep a dispatch for ever.
constexpr int kLinesAtOnce = 256;

void write_target(Request& request, const Target& target) {
  request.key("target").begin_object();
  switch (target.kind) {
    case Target::Kind::kSelf:
      request.key("self").boolean(true);
      break;
    case Target::Kind::kProcess:
      request.key("pid").integer(target.pid);
      break;
    case Target::Kind::kCommand:
      request.key("argv").begin_array();
      for (const std::string& argument : target.arguments) request.text(argument);
      request.end_array();
      break;
  }
  request.end_object();
}

// Of an answer that exchange() has let through: it has one.
const Json& result_of(const JsonDocument& answer) { return *answer.root.find("result"); }

void set_event(const Fd& event) {
  const std::uint64_t one = 1;
  if (event) system_call(SYS_write, event.get(), as_long(&one), sizeof one);
}

void reset_event(const Fd& event) {
  std::uint64_t count = 0;
  if (event) system_call(SYS_read, event.get(), as_long(&count), sizeof count);
}

Outcome<> add_to_epoll(const Fd& epoll, int fd) {
  epoll_event interest{};
  interest.events = EPOLLIN;
  const long added = system_call(SYS_epoll_ctl, epoll.get(), EPOLL_CTL_ADD, fd, as_long(&interest));
  if (added < 0) return os_failure("adding to an epoll descriptor", added);
  return {};
}

// The record of an end that no helper is left to tell.
std::unique_ptr<RecordBatch> ended_batch(std::string_view text) {
  auto batch = std::make_unique<RecordBatch>();
  const std::span<trapline_record> record = batch->arena.make<trapline_record>(1);
  record[0].kind = TRAPLINE_RECORD_ENDED;
  record[0].reason = TRAPLINE_END_ERROR;
  record[0].text = batch->arena.copy(text);
  batch->records = record;
  batch->ended = true;
  return batch;
}

}  // namespace

Session::Session(Helper helper, unsigned flags)
    : owner_(current_process()),
      helper_pid_(helper.pid),
      delivers_records_((flags & TRAPLINE_RECORDS) != 0),
      channel_(std::move(helper.socket),
               "the helper (" + helper.path + ", process " + std::to_string(helper.pid) + ')'),
      queue_(delivers_records_ ? kQueueLimit : kQueueLimitWithoutRecords) {}

Outcome<std::shared_ptr<Session>> Session::open(Target target, unsigned flags,
                                                const Inside& inside) {
  const HelperSearch search = this_process_search();
  Outcome<std::string> path = find_helper(search);
  if (!path) return Failure(std::move(path).error());
  const HelperOutput output = search.debug ? HelperOutput::kInherited : HelperOutput::kDiscarded;
  target.has_standard_files = target.kind == Target::Kind::kCommand;
  const HelperFiles files = target.has_standard_files ? HelperFiles::kStandard : HelperFiles::kNone;
  Outcome<HelperProcess> process = start_helper(*path, output, files, inside);
  if (!process) return Failure(std::move(process).error());
  return open_with({std::move(process->socket), process->pid, std::move(*path)}, target, flags,
                   inside);
}

Outcome<std::shared_ptr<Session>> Session::open_with(Helper helper, const Target& target,
                                                     unsigned flags, const Inside& inside) {
  auto session = std::make_shared<Session>(std::move(helper), flags);
  const Holding holding(session->lock_, inside);
  TC_TRY(session->handshake(target, inside));
  return session;
}

Outcome<> Session::handshake(const Target& target, const Inside& inside) {
  yama_ = target.kind == Target::Kind::kSelf && yama_scope() == 1;
  Request initialize = request("initialize");
  initialize.key("protocol").integer(kProtocolVersion);
  initialize.key("client").text(std::string("libtrapline ") + trapline_version());
  Outcome<JsonDocument> greeting = exchange(std::move(initialize), inside);
  if (!greeting) {
    Failure failure(std::move(greeting).error());
    if (failure.code == TRAPLINE_ERROR_HELPER_GONE) {
      failure.text += " (before its first answer; TRAPLINE_DEBUG=1 lets its messages through)";
    }
    return failure;
  }
  JsonReader reader;
  const std::uint32_t spoken =
      reader.small_integer(reader.member(result_of(*greeting), "protocol"), "protocol");
  TC_TRY(reader.result());
  if (spoken != kProtocolVersion) {
    return Failure{TRAPLINE_ERROR_PROTOCOL, "the helper speaks version " + std::to_string(spoken) +
                                                " of the protocol, the library version " +
                                                std::to_string(kProtocolVersion)};
  }

  permit_tracing();
  Request open = request("open");
  write_target(open, target);
  open.key("records").text(delivers_records_ ? "push" : "none");
  if (target.kind == Target::Kind::kSelf) open.key("mute_offset").integer(Inside::word_offset());
  if (target.has_standard_files) {
    open.key("stdio").begin_array();
    for (const int fd : kStandardFiles) open.integer(fd);
    open.end_array();
  }
  const Outcome<JsonDocument> opened = exchange(std::move(open), inside);
  if (!opened) return Failure(opened.error());
  const Json& result = result_of(*opened);
  id_ = reader.small_integer(reader.member(result, "session"), "session");
  pid_ = static_cast<int>(reader.small_integer(reader.member(result, "pid"), "pid"));
  return reader.result();
}

void Session::permit_tracing() const {
  // Anew each time: another session's helper may have been permitted since. Between two sessions
  // that start at the same moment one may still lose, and gets an error that says so.
  if (yama_) allow_tracer(helper_pid_);
}

Outcome<> Session::check_owner() const {
  if (current_process() == owner_) return {};
  return Failure{TRAPLINE_ERROR_FORKED, "the session belongs to the process that forked this one"};
}

Request Session::request(std::string_view method) {
  Request request(++last_request_, method);
  if (id_ != 0) request.key("session").integer(id_);
  return request;
}

Outcome<> Session::accept_notification(const Json& line) {
  JsonReader reader;
  const std::string_view method = reader.text(reader.member(line, "method"), "method");
  const Json& parameters = reader.member(line, "params");
  TC_TRY(reader.result());
  Outcome<std::unique_ptr<RecordBatch>> batch = decode_notification(method, parameters);
  if (!batch) return Failure(std::move(batch).error());
  if (*batch == nullptr || (*batch)->records.empty()) return {};
  ended_ = ended_ || (*batch)->ended;
  queue_.push(std::move(*batch));
  return {};
}

Outcome<JsonDocument> Session::exchange(Request request, const Inside& inside,
                                        ReportPointer* mistakes) {
  if (closed() || channel_.failed()) return channel_.gone();
  Outcome<std::string> line = request.finish();
  if (!line) return Failure(std::move(line).error());
  const auto give_up = [&](Failure failure) {
    failure = channel_.give_up(std::move(failure), "sent what was not understood");
    update_events();
    return failure;
  };
  const Deadline limit = deadline();
  if (auto sent = channel_.send(*line, limit, inside); !sent) {
    update_events();
    return Failure(std::move(sent).error());
  }
  while (true) {
    const Outcome<std::span<char>> received = channel_.receive(limit, inside);
    if (!received) {
      update_events();
      return Failure(received.error());
    }
    Outcome<JsonDocument> document = parse_line(*received);
    if (!document) return give_up(std::move(document).error());
    JsonReader reader;
    const Json& id = reader.optional_member(document->root, "id");
    const Json& error = reader.optional_member(document->root, "error");
    if (id.is_null() && error.is_null()) {
      if (auto accepted = accept_notification(document->root); !accepted) {
        return give_up(std::move(accepted).error());
      }
      update_events();
      continue;
    }
    // An error without an id: the helper could not even read the request.
    if (!id.is_null() && (!id.is_integer() || id.bits() != last_request_)) {
      return give_up({TRAPLINE_ERROR_PROTOCOL, "the helper answered another request"});
    }
    if (!error.is_null()) {
      Outcome<RemoteError> remote = decode_error(error);
      if (!remote) return give_up(std::move(remote).error());
      if (mistakes != nullptr) *mistakes = std::move(remote->report);
      return std::move(remote->failure);
    }
    if (!reader.is_object(reader.member(document->root, "result"), "the result")) {
      return give_up(reader.result().error());
    }
    return document;
  }
}

Outcome<Session::ReportPointer> Session::compile(const trapline_program& program,
                                                 ReportPointer* mistakes, const Inside& inside) {
  const Holding holding(lock_, inside);
  permit_tracing();
  Request compile = request("compile");
  compile.key("text").text({program.text, program.text_size});
  if (program.name != nullptr) compile.key("name").text(program.name);
  if (program.argument_count != 0) {
    compile.key("arguments").begin_array();
    for (std::size_t i = 0; i < program.argument_count; ++i) compile.text(program.arguments[i]);
    compile.end_array();
  }
  if (program.option_count != 0) {
    compile.key("options").begin_object();
    for (std::size_t i = 0; i < program.option_count; ++i) {
      const trapline_option& option = program.options[i];
      compile.key(option.name);
      if (option.value != nullptr) {
        compile.text(option.value);
      } else {
        compile.boolean(true);
      }
    }
    compile.end_object();
  }
  const Outcome<JsonDocument> answer = exchange(std::move(compile), inside, mistakes);
  if (!answer) return Failure(answer.error());
  ended_ = false;
  reset_event(ended_event_);
  return decode_report(result_of(*answer));
}

Outcome<Session::ReportPointer> Session::report_request(std::string_view method,
                                                        const Inside& inside) {
  permit_tracing();
  const Outcome<JsonDocument> answer = exchange(request(method), inside);
  if (!answer) return Failure(answer.error());
  return decode_report(result_of(*answer));
}

Outcome<Session::ReportPointer> Session::start(const Inside& inside) {
  const Holding holding(lock_, inside);
  Outcome<ReportPointer> report = report_request("start", inside);
  if (!report || (*report)->probes != 0 || (*report)->refusals.empty()) return report;
  const trapline_refusal& refusal = (*report)->refusals.front();
  Failure failure{TRAPLINE_ERROR_UNSUPPORTED, std::string("no place can be probed: ") +
                                                  refusal.probe.data + ": " + refusal.reason.data};
  TC_TRY(report_request("stop", inside));
  return failure;
}

Outcome<Session::ReportPointer> Session::stop(const Inside& inside) {
  const Holding holding(lock_, inside);
  Outcome<ReportPointer> report = report_request("stop", inside);
  // It had ended by itself, which the program may not have known.
  if (!report && report.error().code == TRAPLINE_ERROR_STATE && ended_) {
    return std::make_unique<trapline_report>();
  }
  return report;
}

Outcome<std::unique_ptr<trapline_snapshot>> Session::snapshot(unsigned flags,
                                                              const Inside& inside) {
  const Holding holding(lock_, inside);
  Request ask = request("snapshot");
  ask.key("text").boolean((flags & TRAPLINE_SNAPSHOT_TEXT) != 0);
  const Outcome<JsonDocument> answer = exchange(std::move(ask), inside);
  if (!answer) return Failure(answer.error());
  Outcome<std::unique_ptr<trapline_snapshot>> snapshot = decode_snapshot(result_of(*answer));
  if (snapshot) (*snapshot)->drops.client += queue_.lost();
  return snapshot;
}

Outcome<> Session::clear(const Inside& inside) {
  const Holding holding(lock_, inside);
  const Outcome<JsonDocument> answer = exchange(request("clear"), inside);
  if (!answer) return Failure(answer.error());
  return {};
}

void Session::close(const Inside& inside) {
  const Holding holding(lock_, inside);
  if (closed()) return;
  told_gone_ = true;
  if (!channel_.failed()) {
    permit_tracing();
    id_ = 0;  // shutdown names no session
    if (const int limit = timeout_.load(); limit < 0 || limit > kCloseTimeout) {
      set_timeout(kCloseTimeout);
    }
    // If it fails, the helper sees the end of its input, and does the same.
    static_cast<void>(exchange(request("shutdown"), inside));
  }
  channel_.give_up({}, "was ended");
  if (yama_) allow_tracer(0);
  closed_.store(true, std::memory_order_release);
  update_events();
}

Outcome<> Session::pump() {
  for (int lines = 0; lines < kLinesAtOnce && !channel_.failed(); ++lines) {
    const Outcome<std::optional<std::span<char>>> line = channel_.try_receive();
    if (!line) return Failure(line.error());
    if (!*line) break;
    Outcome<JsonDocument> document = parse_line(**line);
    Outcome<> accepted =
        document ? accept_notification(document->root) : Outcome<>(std::move(document).error());
    if (!accepted) {
      return channel_.give_up(std::move(accepted).error(), "sent what was not understood");
    }
  }
  return {};
}

// An event is set once, not at each change: reading resets it as a whole.
void Session::update_events() {
  if (channel_.failed() && !told_gone_) {
    told_gone_ = true;
    queue_.push(ended_batch(channel_.gone().text));
  }
  const bool wanted = !queue_.empty() || channel_.failed();
  if (event_ && wanted != event_set_) {
    if (wanted) {
      set_event(event_);
    } else {
      reset_event(event_);
    }
    event_set_ = wanted;
  }
  if (ended_ || channel_.failed()) set_event(ended_event_);
}

Outcome<> Session::ensure_event(Fd& event) {
  if (event) return {};
  const long made = system_call(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made < 0) return os_failure("making an event descriptor", made);
  event = Fd(static_cast<int>(made));
  update_events();
  return {};
}

Outcome<int> Session::pollable(const Inside& inside) {
  const Holding holding(lock_, inside);
  if (epoll_) return epoll_.get();
  TC_TRY(ensure_event(event_));
  const long made = system_call(SYS_epoll_create1, EPOLL_CLOEXEC);
  if (made < 0) return os_failure("making an epoll descriptor", made);
  Fd epoll(static_cast<int>(made));
  TC_TRY(add_to_epoll(epoll, event_.get()));
  if (!channel_.failed()) TC_TRY(add_to_epoll(epoll, channel_.fd()));
  epoll_ = std::move(epoll);
  return epoll_.get();
}

Outcome<std::vector<std::unique_ptr<RecordBatch>>> Session::take_arrived() {
  std::vector<std::unique_ptr<RecordBatch>> taken;
  const Holding holding(lock_);
  if (!holding) return taken;
  Outcome<> pumped = pump();
  update_events();
  while (auto batch = queue_.pop()) taken.push_back(std::move(batch));
  update_events();
  if (!taken.empty()) return taken;
  if (!pumped) return Failure(std::move(pumped).error());
  if (channel_.failed()) return channel_.gone();
  return taken;
}

Outcome<std::unique_ptr<RecordBatch>> Session::take_one(const Inside& inside) {
  const Holding holding(lock_, inside);
  if (queue_.empty()) static_cast<void>(pump());
  update_events();
  std::unique_ptr<RecordBatch> batch = queue_.pop();
  update_events();
  if (batch == nullptr && channel_.failed()) return channel_.gone();
  return batch;
}

void Session::put_back(std::unique_ptr<RecordBatch> batch, const Inside& inside) {
  const Holding holding(lock_, inside);
  queue_.put_back(std::move(batch));
  update_events();
}

Outcome<> Session::wait(int milliseconds, const Inside& inside) {
  const Deadline limit = deadline_after(milliseconds);
  while (true) {
    pollfd fds[2] = {};
    {
      const Holding holding(lock_, inside);
      if (Outcome<> pumped = pump(); !pumped && !ended_) return pumped;
      update_events();
      if (ended_) return {};
      if (channel_.failed()) return channel_.gone();
      TC_TRY(ensure_event(ended_event_));
      fds[0] = {channel_.fd(), POLLIN, 0};
      fds[1] = {ended_event_.get(), POLLIN, 0};
    }
    const int ready = inside.poll(fds, limit);
    // Also where records keep it busy.
    const bool late = limit && Clock::now() >= *limit && fds[1].revents == 0;
    if (ready == 0 || (late && ready > 0))
      return Failure{TRAPLINE_ERROR_TIMEOUT, "tracing has not ended yet"};
    if (ready < 0 && ready != -EINTR) return os_failure("waiting for the end of tracing", ready);
  }
}

}  // namespace trapline::client
