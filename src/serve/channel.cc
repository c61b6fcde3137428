#include "serve/channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>

namespace trapline::serve {

namespace {

constexpr std::size_t kReadSize = std::size_t{64} << 10;
// Lines that were taken are thrown away when they are at least this much.
constexpr std::size_t kCompactSize = std::size_t{1} << 20;

bool is_socket(const Fd& fd) {
  struct ::stat facts{};
  return ::fstat(fd.get(), &facts) == 0 && S_ISSOCK(facts.st_mode);
}

// A descriptor of the same pipe or file whose flags are our own.
Result<Fd> open_anew(Fd fd, int mode) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  Fd own(::open(path.c_str(), mode | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (own) return own;
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) < 0)
    return Error::os(errno, "the client's descriptor");
  return fd;
}

bool would_block(int err) { return err == EAGAIN || err == EWOULDBLOCK || err == EINTR; }

}  // namespace

Result<Channel> Channel::create(Fd in, Fd out) {
  Channel channel(std::move(in), std::move(out));
  channel.socket_in_ = is_socket(channel.in_);
  if (!channel.socket_in_) {
    TL_TRY_ASSIGN(channel.in_, open_anew(std::move(channel.in_), O_RDONLY));
  }
  channel.socket_out_ = channel.out_ ? is_socket(channel.out_) : channel.socket_in_;
  if (!channel.socket_out_) {
    TL_TRY_ASSIGN(channel.out_, open_anew(std::move(channel.out_), O_WRONLY));
  }
  return channel;
}

Channel::Channel(Fd in, Fd out) : in_(std::move(in)), out_(std::move(out)) {}

Result<Channel::Input> Channel::read_some() {
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
    scanned_ = 0;
  } else if (begin_ >= kCompactSize) {
    buffer_.erase(0, begin_);
    scanned_ -= begin_;
    begin_ = 0;
  }
  const std::size_t old = buffer_.size();
  buffer_.resize(old + kReadSize);
  const ssize_t n = socket_in_ ? ::recv(in_.get(), buffer_.data() + old, kReadSize, MSG_DONTWAIT)
                               : ::read(in_.get(), buffer_.data() + old, kReadSize);
  const int err = errno;
  buffer_.resize(old + static_cast<std::size_t>(n > 0 ? n : 0));
  if (n == 0) return Input::kEnded;
  if (n < 0 && would_block(err)) return Input::kOpen;
  // A client that was killed with something unread: its end, all the same.
  if (n < 0 && err == ECONNRESET) return Input::kEnded;
  if (n < 0) return Error::os(err, "reading from the client");
  if (buffer_.size() - begin_ > kMaxLine && buffer_.find('\n', scanned_) == std::string::npos)
    return Error(ErrorCode::kBadInput, "the client sent a line of more than 64 MiB");
  return Input::kOpen;
}

std::optional<std::string_view> Channel::next_line() {
  const std::size_t end = buffer_.find('\n', scanned_);
  if (end == std::string::npos) {
    scanned_ = buffer_.size();
    return std::nullopt;
  }
  const std::string_view line = std::string_view(buffer_).substr(begin_, end - begin_);
  begin_ = scanned_ = end + 1;
  return line;
}

void Channel::queue(std::string line, Use use) {
  queued_ += line.size();
  if (use == Use::kNotification) unread_ += line.size();
  queue_.push_back({std::move(line), use});
}

Result<> Channel::write_some() {
  while (!queue_.empty()) {
    const Piece& piece = queue_.front();
    const char* from = piece.text.data() + sent_;
    const std::size_t left = piece.text.size() - sent_;
    const ssize_t n = socket_out_ ? ::send(output_fd(), from, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                  : ::write(output_fd(), from, left);
    if (n < 0 && would_block(errno)) return {};
    if (n < 0) return Error::os(errno, "writing to the client");
    sent_ += static_cast<std::size_t>(n);
    if (sent_ < piece.text.size()) continue;
    queued_ -= piece.text.size();
    if (piece.use == Use::kNotification) unread_ -= piece.text.size();
    queue_.pop_front();
    sent_ = 0;
  }
  return {};
}

}  // namespace trapline::serve
