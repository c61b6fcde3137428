#include "client/channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/syscalls.h"

namespace trapline::client {
namespace {

constexpr std::size_t kReadSize = std::size_t{16} << 10;
constexpr std::size_t kGreatestRead = std::size_t{256} << 10;  // more than a socket holds
constexpr std::size_t kKeptCapacity = std::size_t{256} << 10;  // a greater buffer is given back

}  // namespace

Failure Channel::gone() const { return {TRAPLINE_ERROR_HELPER_GONE, reason_}; }

Failure Channel::give_up(Failure failure, std::string_view reason) {
  if (!failed()) reason_ = helper_ + ' ' + std::string(reason) + "; the session is of no more use";
  socket_.reset();
  begin_ = 0;
  scanned_ = 0;
  std::string().swap(buffer_);
  if (failure.text.empty()) failure.text = reason_;
  return failure;
}

std::optional<std::span<char>> Channel::take_line() {
  const std::size_t end = buffer_.find('\n', scanned_);
  if (end == std::string::npos) {
    scanned_ = buffer_.size();
    return std::nullopt;
  }
  buffer_[end] = '\0';
  const std::span<char> line(buffer_.data() + begin_, end - begin_);
  begin_ = end + 1;
  scanned_ = begin_;
  return line;
}

Outcome<bool> Channel::read_some() {
  if (begin_ > 0) {
    buffer_.erase(0, begin_);
    scanned_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() > kMaxLine) {
    return give_up({TRAPLINE_ERROR_PROTOCOL, "the helper sent a line of more than 64 MiB"},
                   "sent a line of more than 64 MiB");
  }
  if (buffer_.empty() && buffer_.capacity() > kKeptCapacity) std::string().swap(buffer_);
  const std::size_t size = std::clamp(buffer_.size() / 2, kReadSize, kGreatestRead);
  const std::size_t before = buffer_.size();
  buffer_.resize(before + size);
  long got = 0;
  do {
    got = system_call(SYS_recvfrom, socket_.get(), as_long(buffer_.data() + before),
                      static_cast<long>(size), MSG_DONTWAIT);
  } while (got == -EINTR);
  buffer_.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
  if (got > 0) return true;
  if (got == -EAGAIN) return false;
  return give_up({TRAPLINE_ERROR_HELPER_GONE, ""}, "has ended");  // the end, or ECONNRESET
}

Outcome<> Channel::wait(short events, Deadline deadline, const Inside& inside) {
  pollfd fd{socket_.get(), events, 0};
  const int ready = inside.poll({&fd, 1}, deadline);
  if (ready > 0 || ready == -EINTR) return {};
  if (ready == 0) {
    return give_up({TRAPLINE_ERROR_TIMEOUT, helper_ + " did not answer in time"},
                   "did not answer in time");
  }
  return give_up(os_failure("waiting for the helper", ready), "could not be waited for");
}

Outcome<> Channel::send(std::string_view line, Deadline deadline, const Inside& inside) {
  if (failed()) return gone();
  while (!line.empty()) {
    const long sent = system_call(SYS_sendto, socket_.get(), as_long(line.data()),
                                  static_cast<long>(line.size()), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      line.remove_prefix(static_cast<std::size_t>(sent));
    } else if (sent == -EAGAIN) {
      TC_TRY(wait(POLLIN | POLLOUT, deadline, inside));
      TC_TRY(read_some());
    } else if (sent != -EINTR) {
      return give_up({TRAPLINE_ERROR_HELPER_GONE, ""}, "has ended");
    }
  }
  return {};
}

Outcome<std::optional<std::span<char>>> Channel::try_receive() {
  while (true) {
    if (const auto line = take_line()) return line;
    if (failed()) return gone();
    const Outcome<bool> got = read_some();
    if (!got) return Failure(got.error());
    if (!*got) return std::nullopt;
  }
}

Outcome<std::span<char>> Channel::receive(Deadline deadline, const Inside& inside) {
  while (true) {
    Outcome<std::optional<std::span<char>>> line = try_receive();
    if (!line) return Failure(std::move(line).error());
    if (*line) return **line;
    TC_TRY(wait(POLLIN, deadline, inside));
  }
}

}  // namespace trapline::client
