#include "serve/server.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "target/launch.h"

namespace trapline::serve {

namespace {

using std::chrono::milliseconds;

// How long a client may take to read what it has asked for, at the end.
constexpr milliseconds kFlushTime{2000};
constexpr milliseconds kLongestWait{60'000};

Failure parameters(std::string text) { return {Kind::kParameters, std::move(text), {}}; }

}  // namespace

Server::Server(const ServerSettings& settings, Streams& streams, int signals, Channel& channel,
               std::optional<Peer> peer)
    : settings_(settings),
      streams_(streams),
      signals_(signals),
      channel_(channel),
      peer_(std::move(peer)) {}

Result<Server::End> Server::run() {
  Result<End> end = loop();
  sessions_.clear();
  flush(end ? *end : End::kClient);
  reap();
  return end;
}

Result<Server::End> Server::loop() {
  for (;;) {
    const bool more = take_request();
    if (!channel_.write_some()) return End::kClient;
    if (shutdown_) return End::kShutdown;
    if (input_ended_ && !more && !channel_.full()) return End::kClient;
    TL_TRY_ASSIGN(const Woken woken, wait(more));
    if (woken.signal) return End::kSignal;
    if (woken.peer_gone) return End::kClient;
    if (!woken.input) continue;
    TL_TRY_ASSIGN(const Channel::Input input, channel_.read_some());
    input_ended_ = input == Channel::Input::kEnded;
  }
}

// One at a time, so that sessions are worked on in between. True: there was one.
bool Server::take_request() {
  if (channel_.full()) return false;
  const auto line = channel_.next_line();
  if (!line) return false;
  auto call = read_call(*line);
  if (!call) {
    const BadCall& bad = call.error();
    if (!bad.id.empty()) channel_.answer(failure_line(bad.id, bad.failure));
    return true;
  }
  const Answer result = answer(call->method);
  if (call->id.empty()) return true;
  channel_.answer(result ? answer_line(call->id, *result) : failure_line(call->id, result.error()));
  return true;
}

// Waits for anything to happen, does what sessions have to do. `more`: a request was taken, and
// another may be there already.
Result<Server::Woken> Server::wait(bool more) {
  std::vector<pollfd> fds{{signals_, POLLIN, 0}};
  const std::size_t peer = fds.size();
  if (peer_) fds.push_back({peer_->ended.get(), POLLIN, 0});
  const std::size_t output = fds.size();
  if (channel_.has_output()) fds.push_back({channel_.output_fd(), POLLOUT, 0});
  const std::size_t input = fds.size();
  const bool reads = !more && !input_ended_ && !channel_.full();
  if (reads) fds.push_back({channel_.input_fd(), POLLIN, 0});
  const std::size_t first = fds.size();
  const LoopClock::time_point now = LoopClock::now();
  milliseconds timeout = more ? milliseconds(0) : kLongestWait;
  for (const auto& [id, traced] : sessions_) {
    for (const int fd : traced->event_fds()) fds.push_back({fd, POLLIN, 0});
    if (const auto due = traced->due())
      timeout = std::clamp(std::chrono::ceil<milliseconds>(*due - now), milliseconds(0), timeout);
  }
  const int n = ::poll(fds.data(), fds.size(), static_cast<int>(timeout.count()));
  if (n < 0 && errno != EINTR) return Error::os(errno, "poll");
  std::vector<int> ready;
  if (n > 0) {
    for (std::size_t i = first; i < fds.size(); ++i) {
      if (fds[i].revents != 0) ready.push_back(fds[i].fd);
    }
  }
  work(ready);
  if (!children_.empty()) reap();
  const auto is_ready = [&](std::size_t i) { return n > 0 && fds[i].revents != 0; };
  return Woken{is_ready(0), reads && is_ready(input), peer != output && is_ready(peer)};
}

void Server::work(const std::vector<int>& ready) {
  const LoopClock::time_point now = LoopClock::now();
  for (const auto& [id, traced] : sessions_) {
    const auto due = traced->due();
    if (!due) continue;
    const std::vector<int> fds = traced->event_fds();
    const bool woken = std::ranges::any_of(
        fds, [&](int fd) { return std::ranges::find(ready, fd) != ready.end(); });
    if (woken || *due <= now) traced->work();
  }
}

// What a client has not read by then it never will.
void Server::flush(End end) {
  const LoopClock::time_point deadline = LoopClock::now() + kFlushTime;
  while (channel_.has_output() && channel_.write_some()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - LoopClock::now());
    if (!channel_.has_output() || left.count() <= 0) break;
    pollfd output{channel_.output_fd(), POLLOUT, 0};
    pollfd fds[2] = {output, {signals_, POLLIN, 0}};
    const nfds_t count = end == End::kSignal ? 1 : 2;
    (void)::poll(fds, count, static_cast<int>(left.count()));
    if (count == 2 && fds[1].revents != 0) break;
  }
}

// Commands that outlive their sessions are waited for, so that no zombies stay.
void Server::reap() {
  std::erase_if(children_, [](Pid child) { return ::waitpid(child.value, nullptr, WNOHANG) != 0; });
}

// -------------------------------------------------------------------------------------------------
// methods

Answer Server::answer(const Method& method) {
  if (!initialized_ && !std::holds_alternative<Initialize>(method))
    return std::unexpected(Failure{Kind::kState, "initialize comes first", {}});
  return std::visit([this](const auto& request) { return answer_to(request); }, method);
}

Answer Server::answer_to(const Initialize& request) {
  const std::string spoken = "\"protocol\":" + std::to_string(kProtocol);
  if (request.protocol != kProtocol) {
    return std::unexpected(Failure{Kind::kUnsupported,
                                   "protocol " + std::to_string(request.protocol) +
                                       " is not spoken here: " + std::to_string(kProtocol) + " is",
                                   spoken});
  }
  initialized_ = true;
  return "{" + spoken + ",\"version\":\"" + settings_.version + "\"}";
}

Answer Server::answer_to(const Open& request) {
  if (std::holds_alternative<Self>(request.target) && !peer_) {
    return std::unexpected(
        parameters("self: who is at the other end of standard input cannot be told: it is no unix "
                   "socket, or its maker has ended or is in another PID namespace"));
  }
  auto tracee = find_target(request);
  if (!tracee) {
    const auto* pid = std::get_if<Pid>(&request.target);
    if (pid != nullptr) return std::unexpected(failure_about(*pid, tracee.error()));
    if (peer_ && std::holds_alternative<Self>(request.target))
      return std::unexpected(failure_about(peer_->pid, tracee.error()));
    return std::unexpected(failure_of(tracee.error()));
  }
  const SessionId id = ++last_session_;
  const Traced::Settings settings{id, request.records ? Records::kPush : Records::kNone,
                                  request.mute_offset, settings_.ledger};
  const Pid pid = tracee->pid();
  sessions_.emplace(id, std::make_unique<Traced>(settings, std::move(*tracee), channel_));
  return "{\"session\":" + std::to_string(id) + ",\"pid\":" + std::to_string(pid.value) + "}";
}

Result<session::Tracee> Server::find_target(const Open& request) {
  if (const auto* pid = std::get_if<Pid>(&request.target)) return session::Tracee::attach(*pid);
  if (const auto* command = std::get_if<Command>(&request.target))
    return start_command(*command, request);
  return session::Tracee::attach(peer_->pid);
}

Result<session::Tracee> Server::start_command(const Command& command, const Open& request) {
  std::vector<std::string> argv = command.argv;
  if (argv.empty()) {
    TL_TRY_ASSIGN(argv, target::split_command(command.line));
  }
  target::LaunchOptions options;
  options.signal_mask = settings_.command_mask;
  TL_TRY_ASSIGN(options.stdio, streams_.for_command(request.stdio));
  auto tracee = session::Tracee::launch(argv, options);
  if (tracee && request.stdio) streams_.hand_over(*request.stdio);
  return tracee;
}

template <typename F>
Answer Server::with_session(SessionId id, F f) {
  const auto at = sessions_.find(id);
  if (at == sessions_.end())
    return std::unexpected(Failure{Kind::kState, "no session " + std::to_string(id), {}});
  return f(*at->second);
}

Answer Server::answer_to(const Compile& request) {
  return with_session(request.session, [&](Traced& t) { return t.compile(request); });
}
Answer Server::answer_to(const Start& request) {
  return with_session(request.session, [](Traced& t) { return t.start(); });
}
Answer Server::answer_to(const Stop& request) {
  return with_session(request.session, [](Traced& t) { return t.stop(); });
}
Answer Server::answer_to(const TakeSnapshot& request) {
  return with_session(request.session, [&](Traced& t) { return t.snapshot(request); });
}
Answer Server::answer_to(const Clear& request) {
  return with_session(request.session, [](Traced& t) { return t.clear(); });
}

Answer Server::answer_to(const Close& request) {
  Answer closed = with_session(request.session, [&](Traced& t) {
    Answer answer = t.close();
    if (const auto child = t.child()) children_.push_back(*child);
    return answer;
  });
  sessions_.erase(request.session);
  return closed;
}

Answer Server::answer_to(const Shutdown&) {
  sessions_.clear();
  shutdown_ = true;
  return "{}";
}

}  // namespace trapline::serve
