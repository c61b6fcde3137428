// The loop of trapline serve, for one client: requests are answered in order, running sessions are
// worked on when they are due.

#pragma once

#include <signal.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "serve/channel.h"
#include "serve/peer.h"
#include "serve/streams.h"
#include "serve/traced.h"

namespace trapline::serve {

inline constexpr int kProtocol = 1;

struct ServerSettings {
  std::string version;
  sigset_t command_mask{};  // the signals that commands start with blocked
  session::Ledger* ledger = nullptr;
};

class Server {
 public:
  // All outlive the server. `signals`: readable when serve is to end.
  Server(const ServerSettings& settings, Streams& streams, int signals, Channel& channel,
         std::optional<Peer> peer);

  enum class End : std::uint8_t { kClient, kShutdown, kSignal };
  // Until the client ends, asks for the end, or a signal does. All processes have been restored
  // then. Errors: the client broke the protocol's bounds, or the system failed.
  Result<End> run();

 private:
  struct Woken {
    bool signal = false;
    bool input = false;
    bool peer_gone = false;
  };

  bool take_request();
  Result<Woken> wait(bool more);
  void work(const std::vector<int>& ready);
  void flush(End end);
  void reap();
  Result<End> loop();

  Answer answer(const Method& method);
  Answer answer_to(const Initialize& request);
  Answer answer_to(const Open& request);
  Answer answer_to(const Compile& request);
  Answer answer_to(const Start& request);
  Answer answer_to(const Stop& request);
  Answer answer_to(const TakeSnapshot& request);
  Answer answer_to(const Clear& request);
  Answer answer_to(const Close& request);
  Answer answer_to(const Shutdown& request);
  template <typename F>
  Answer with_session(SessionId id, F f);
  Result<session::Tracee> find_target(const Open& request);
  Result<session::Tracee> start_command(const Command& command, const Open& request);

  const ServerSettings& settings_;
  Streams& streams_;
  int signals_;
  Channel& channel_;
  std::optional<Peer> peer_;
  std::map<SessionId, std::unique_ptr<Traced>> sessions_;
  SessionId last_session_ = 0;
  std::vector<Pid> children_;  // commands whose sessions are closed
  bool initialized_ = false;
  bool shutdown_ = false;
  bool input_ended_ = false;
};

}  // namespace trapline::serve
