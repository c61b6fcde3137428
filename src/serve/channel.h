// Lines from the client and to it, without ever blocking.
//
// The client may send slowly, never end a line, not read, or be gone at any moment. Input is read
// as it comes, up to kMaxLine; output waits in a queue. Notifications of a client that does not
// read are bounded by whoever makes them (unread(), kMaxUnread); answers by not taking further
// requests (full()).
//
// A socket is asked not to wait, call by call. A pipe or terminal may be shared with others, who do
// not expect O_NONBLOCK: it is opened anew for ourselves where that can be done.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace trapline::serve {

inline constexpr std::size_t kMaxLine = std::size_t{64} << 20;
inline constexpr std::size_t kMaxUnread = std::size_t{16} << 20;

class Channel {
 public:
  // `out` may be invalid: then `in` is a socket for both directions.
  static Result<Channel> create(Fd in, Fd out);

  enum class Input : std::uint8_t { kOpen, kEnded };
  // Reads what there is. kEnded: no more will come; a line that was not ended is none. Errors:
  // kBadInput: a line beyond kMaxLine; kOs.
  Result<Input> read_some();
  // The next whole line without its '\n'; valid until the next read_some().
  std::optional<std::string_view> next_line();

  void answer(std::string line) { queue(std::move(line), Use::kAnswer); }
  void notify(std::string line) { queue(std::move(line), Use::kNotification); }
  // Bytes of notifications that the client has not taken yet.
  std::size_t unread() const { return unread_; }
  // So many answers wait that no more requests should be taken.
  bool full() const { return queued_ - unread_ > kMaxUnread; }
  bool has_output() const { return !queue_.empty(); }
  // Writes as much as can be taken now. Errors: the client is gone.
  Result<> write_some();

  int input_fd() const { return in_.get(); }
  int output_fd() const { return out_ ? out_.get() : in_.get(); }

 private:
  enum class Use : std::uint8_t { kAnswer, kNotification };
  struct Piece {
    std::string text;
    Use use = Use::kAnswer;
  };

  Channel(Fd in, Fd out);
  void queue(std::string line, Use use);

  Fd in_;
  Fd out_;
  bool socket_in_ = false;
  bool socket_out_ = false;
  std::string buffer_;
  std::size_t begin_ = 0;    // of the first line that was not taken
  std::size_t scanned_ = 0;  // no '\n' in [begin_, scanned_)
  std::deque<Piece> queue_;
  std::size_t sent_ = 0;    // of the first piece
  std::size_t queued_ = 0;  // bytes in all pieces
  std::size_t unread_ = 0;  // bytes in those that are notifications
};

}  // namespace trapline::serve
