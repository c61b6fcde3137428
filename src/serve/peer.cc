#include "serve/peer.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "target/process.h"

namespace trapline::serve {

namespace {

constexpr int kBacklog = 16;

// Whether anybody listens at the address.
bool is_answered(const sockaddr_un& address) {
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(socket.get(), at, sizeof(address)) == 0 || errno != ECONNREFUSED;
}

}  // namespace

std::optional<Peer> peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  if (credentials.pid <= 0) return std::nullopt;
  auto ended = target::open_pidfd(Pid{credentials.pid});
  if (!ended) return std::nullopt;
  return Peer{Pid{credentials.pid}, credentials.uid, std::move(*ended)};
}

Result<Fd> listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path) ||
      path.find('\0') != std::string::npos) {
    return Error(ErrorCode::kBadInput,
                 "'" + path + "' cannot be the path of a socket: it must have " +
                     std::to_string(sizeof(address.sun_path) - 1) + " bytes at most");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  struct ::stat facts{};
  if (::lstat(path.c_str(), &facts) == 0) {
    if (!S_ISSOCK(facts.st_mode) || is_answered(address)) return Error::os(EADDRINUSE, path);
    if (::unlink(path.c_str()) != 0) return Error::os(errno, path);
  }
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Error::os(errno, "socket");
  // The mode of the file is there from its first moment on.
  const mode_t mask = ::umask(0177);
  const int bound =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int err = errno;
  ::umask(mask);
  if (bound != 0) return Error::os(err, path);
  if (::listen(socket.get(), kBacklog) != 0) return Error::os(errno, path);
  return socket;
}

}  // namespace trapline::serve
