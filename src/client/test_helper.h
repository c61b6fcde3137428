// The other end of a session, in the test's own process: a thread that answers each request as it
// is told to.

#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "client/handle.h"
#include "client/session.h"

namespace trapline::client {

class TestHelper {
 public:
  // Lines to send for a request, without their ends. "@close": hang up.
  // `id` and `method` are the request's; `line` is all of it.
  using Answer = std::function<std::vector<std::string>(
      const std::string& id, const std::string& method, const std::string& line)>;

  explicit TestHelper(Answer answer) : answer_(std::move(answer)) {
    int pair[2];
    TL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    ours_ = Fd(pair[0]);
    theirs_ = Fd(pair[1]);
    thread_ = std::thread([this] { run(); });
  }
  ~TestHelper() {
    ::shutdown(ours_.get(), SHUT_RDWR);
    thread_.join();
  }

  // A handle over this helper; nullptr with the failure in `failure`.
  trapline_session* open(unsigned flags = 0, Failure* failure = nullptr, Target target = {}) {
    const Inside inside;
    auto session = Session::open_with({std::move(theirs_), 4242, "test"}, target, flags, inside);
    if (!session) {
      if (failure != nullptr) *failure = session.error();
      return nullptr;
    }
    return new trapline_session{std::move(*session)};
  }

  // Sends a line of its own accord.
  void send(const std::string& line) { write(line + "\n"); }
  void hang_up() { ::shutdown(ours_.get(), SHUT_RDWR); }

  std::vector<std::string> requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

  static std::string result(const std::string& id, const std::string& result) {
    return R"({"jsonrpc":"2.0","id":)" + id + R"(,"result":)" + result + "}";
  }
  static std::string notification(const std::string& method, const std::string& parameters) {
    return R"({"jsonrpc":"2.0","method":")" + method + R"(","params":)" + parameters + "}";
  }
  // The first two answers of every session, and one to shutdown; empty for other methods.
  static std::vector<std::string> usual(const std::string& id, const std::string& method) {
    if (method == "initialize") return {result(id, R"({"protocol":1,"version":"0.1.0"})")};
    if (method == "open") return {result(id, R"({"session":1,"pid":77})")};
    if (method == "shutdown") return {result(id, "{}"), "@close"};
    return {};
  }

 private:
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(ours_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  static std::string between(const std::string& text, const std::string& before, char end) {
    const std::size_t from = text.find(before);
    if (from == std::string::npos) return {};
    return text.substr(from + before.size(),
                       text.find(end, from + before.size()) - from - before.size());
  }
  void run() {
    std::string buffer;
    char piece[4096];
    while (true) {
      const ssize_t got = ::recv(ours_.get(), piece, sizeof piece, 0);
      if (got <= 0) return;
      buffer.append(piece, static_cast<std::size_t>(got));
      for (std::size_t end = 0; (end = buffer.find('\n')) != std::string::npos;) {
        const std::string line = buffer.substr(0, end);
        buffer.erase(0, end + 1);
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          requests_.push_back(line);
        }
        for (const std::string& out :
             answer_(between(line, "\"id\":", ','), between(line, "\"method\":\"", '"'), line)) {
          if (out == "@close") {
            hang_up();
          } else {
            write(out + "\n");
          }
        }
      }
    }
  }

  Answer answer_;
  Fd ours_;
  Fd theirs_;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace trapline::client
