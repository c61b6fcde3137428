// Signals are blocked rather than ignored: commands that are started get the mask that serve was
// started with, and an ignored signal would stay ignored in them. Those that a terminal sends to
// its whole group are the client's affair; SIGTERM ends serve in order.

#include "serve/serve.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "serve/server.h"

namespace trapline::serve {

namespace {

Result<Fd> take_signals(sigset_t& original) {
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : {SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGHUP, SIGPIPE, SIGUSR1,
                           SIGUSR2, SIGALRM, SIGTERM, SIGCHLD}) {
    sigaddset(&blocked, signal);
  }
  // Where they were ignored, commands could not be waited for, and SIGTERM would be lost.
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  if (::sigprocmask(SIG_BLOCK, &blocked, &original) != 0) return Error::os(errno, "sigprocmask");
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  Fd fd(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return Error::os(errno, "signalfd");
  return fd;
}

// The file of a socket that is listened at.
class SocketFile {
 public:
  explicit SocketFile(std::string path) : path_(std::move(path)) {}
  ~SocketFile() { ::unlink(path_.c_str()); }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

 private:
  std::string path_;
};

Result<> serve_clients(const std::string& path, const ServerSettings& settings, Streams& streams,
                       int signals) {
  TL_TRY_ASSIGN(const Fd listening, listen_at(path));
  const SocketFile file(path);
  for (;;) {
    pollfd fds[2] = {{signals, POLLIN, 0}, {listening.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return Error::os(errno, "poll");
    if (fds[0].revents != 0) return {};
    Fd client(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) continue;
    std::optional<Peer> peer = peer_of(client.get());
    if (peer && peer->uid != ::geteuid()) continue;
    auto channel = Channel::create(std::move(client), Fd());
    if (!channel) continue;
    // A client that broke the bounds ends its own connection only.
    const auto end = Server(settings, streams, signals, *channel, std::move(peer)).run();
    if (end && (*end == Server::End::kSignal || *end == Server::End::kShutdown)) return {};
  }
}

}  // namespace

Result<> serve(const ServeOptions& options) {
  TL_TRY_ASSIGN(Streams streams,
                Streams::take(options.socket ? Protocol::kElsewhere : Protocol::kStandardStreams));
  ServerSettings settings;
  settings.version = options.version;
  settings.ledger = options.ledger;
  TL_TRY_ASSIGN(const Fd signals, take_signals(settings.command_mask));
  if (options.socket) return serve_clients(*options.socket, settings, streams, signals.get());
  Fd input = streams.take_input();
  std::optional<Peer> peer = peer_of(input.get());
  TL_TRY_ASSIGN(Channel channel, Channel::create(std::move(input), streams.take_output()));
  TL_TRY(Server(settings, streams, signals.get(), channel, std::move(peer)).run());
  return {};
}

}  // namespace trapline::serve
