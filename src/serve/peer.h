// Who is at the other end of a unix socket.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/address.h"
#include "base/fd.h"
#include "base/result.h"

namespace trapline::serve {

struct Peer {
  Pid pid;
  uid_t uid = 0;
  Fd ended;  // readable when the process has ended
};

// SO_PEERCRED: of a socketpair, who made it; of a connection, who connected. nullopt: `fd` is no
// unix socket, or the process is not to be seen from here (another PID namespace, or gone).
std::optional<Peer> peer_of(int fd);

// A listening socket at PATH that only its owner may open. One that nobody listens at any more is
// replaced.
Result<Fd> listen_at(const std::string& path);

}  // namespace trapline::serve
