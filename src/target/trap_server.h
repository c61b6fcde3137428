// Serves breakpoints: a thread that stays attached to a process, and sends whoever executes one of
// our int3 to its trampoline.
//
// ptrace binds a process to the thread that seized it, and a thread of the process that hits an
// int3 stands still until that one answers. So the attachment belongs to a thread of its own, which
// does nothing else: whatever the rest of the tracer waits for, hits are answered. Work on the
// process (stops, system calls) is posted to it by run(), and is short.
//
// A hit: 1. the thread stops with SIGTRAP, pc behind the int3; 2. pc is set to the trampoline; 3.
// it goes on, without the signal. Nothing is stepped, nothing put back. An int3 or SIGTRAP that is
// not ours is delivered.
// A forked child inherits the int3 bytes and nobody who answers: its text is restored before it
// runs. A vfork child shares the memory: its hits are served until it executes or ends.
// A breakpoint without a trampoline is one of the engine `outside`: whoever wants to know is told
// of the hit, and the instruction that it stands on is done for the thread (hidden_instruction.h).
// Limits: the kernel takes SIGTRAP out of the mask of a thread that blocks it and hits an int3, and
// resets a handler then; who arms traps looks beforehand whether there is one. A process made by
// clone with CLONE_VM alone is taken for a fork.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/result.h"
#include "target/attach.h"
#include "target/hidden_instruction.h"
#include "target/registers.h"

namespace trapline::target {

struct Trap {
  RemoteAddr trampoline;            // 0: none, see Outside
  std::vector<std::byte> original;  // of the instruction that the int3 stands on; at least its
                                    // first byte, without a trampoline all
};
using Traps = std::map<RemoteAddr, Trap>;  // by the int3's address

// What is told, on the server's thread, with the thread in question standing still.
struct Outside {
  std::function<void(Tid, RemoteAddr, const Registers&)> hit;  // pc on the instruction
  std::function<void(Tid)> thread_ended;
  ShadowStack shadow_stack = ShadowStack::kNo;
};

class TrapServer {
 public:
  TrapServer();
  TrapServer(TrapServer&&) = delete;
  ~TrapServer();  // lets go of everybody; precondition: no trap stands any more

  // What an attachment has to follow to be served.
  static AttachOptions attach_options();

  // Runs `f` on the server's thread and returns what it returned; from within such a call, at once.
  // All that follows is to be called there.
  template <typename F>
  auto run(F&& f) -> std::invoke_result_t<F> {
    using R = std::invoke_result_t<F>;
    if (std::this_thread::get_id() == thread_.get_id()) return std::forward<F>(f)();
    if constexpr (std::is_void_v<R>) {
      run_task([&] { std::forward<F>(f)(); });
    } else {
      std::optional<R> result;
      run_task([&] { result.emplace(std::forward<F>(f)()); });
      return std::move(*result);
    }
  }

  std::optional<Attachment>& attachment() { return attachment_; }
  void set_traps(Traps traps) { traps_ = std::move(traps); }
  void set_outside(Outside outside);
  // While somebody holds the process stopped, events are left alone.
  void set_serving(bool serving) { serving_ = serving; }
  // Answers all that waits for an answer.
  void serve();
  // The process's end or exec. The latter leaves it stopped.
  std::optional<Event> take_event();

 private:
  void loop();
  void run_task(const std::function<void()>& task);
  bool serve(Attachment& attachment, std::chrono::milliseconds wait);
  void serve_all(std::chrono::milliseconds wait);
  void on_trap(Attachment& attachment, const Event& event);
  void on_step(Attachment& attachment, const Event& event);
  void on_outside_hit(Attachment& attachment, const Event& event, RemoteAddr at,
                      const std::vector<std::byte>& original);
  void on_fork(Attachment& parent, const Event& event);
  void clean(Attachment& child);

  std::optional<Attachment> attachment_;
  std::vector<Attachment> vforked_;
  Traps traps_;
  std::optional<Outside> outside_;
  std::optional<InstructionServer> instructions_;
  // Threads whose hit has been told, while the instruction could not be done yet: they come again.
  struct Owed {
    RemoteAddr at;
    Unfinished unfinished;
  };
  std::map<pid_t, Owed> owed_;
  std::deque<Event> events_;
  bool serving_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trapline::target
