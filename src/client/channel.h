// Lines to and from the helper, over a socket.
//
// Nothing here raises SIGPIPE, is a cancellation point or blocks without a deadline. While a line
// is being sent, what arrives is read: a helper that writes much does not stop reading for it. A
// channel that has failed stays failed, and its socket is closed: the helper takes that as the end,
// and leaves the traced process as it was.

#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "client/failure.h"
#include "client/inside.h"

namespace trapline::client {

inline constexpr std::size_t kMaxLine = std::size_t{64} << 20;

class Channel {
 public:
  // `helper`: how error texts call the other side.
  Channel(Fd socket, std::string helper) : socket_(std::move(socket)), helper_(std::move(helper)) {}

  // Sends `line`, which ends in '\n'.
  Outcome<> send(std::string_view line, Deadline deadline, const Inside& inside);
  // The next line, with a NUL in place of its '\n', writable, valid until the next call. Waits for
  // it.
  Outcome<std::span<char>> receive(Deadline deadline, const Inside& inside);
  // The same without waiting; nullopt: no whole line has arrived.
  Outcome<std::optional<std::span<char>>> try_receive();

  // From now on every call fails, with HELPER_GONE and `reason`; returns `failure`.
  Failure give_up(Failure failure, std::string_view reason);
  bool failed() const { return !socket_.valid(); }
  Failure gone() const;

  int fd() const { return socket_.get(); }  // -1: failed

 private:
  std::optional<std::span<char>> take_line();
  // Reads once; true: something was read.
  Outcome<bool> read_some();
  Outcome<> wait(short events, Deadline deadline, const Inside& inside);

  Fd socket_;
  std::string helper_;
  std::string reason_;
  std::string buffer_;
  std::size_t begin_ = 0;    // of the first line not taken yet
  std::size_t scanned_ = 0;  // no '\n' in [begin_, scanned_)
};

}  // namespace trapline::client
