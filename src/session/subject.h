// Whom a firing in the tracer is about: the thread whose ids, name, processor, registers, memory
// and self variables a clause then sees.
//
// BEGIN, END, ERROR and tick are about the tracer itself (TracerSubject, tracer_environment.h), a
// sample of profile-N about the thread that was sampled (SampleSubject, sample_subject.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/address.h"
#include "plan/plan.h"
#include "plan/registers.h"

namespace trapline::session {

class Subject {
 public:
  virtual ~Subject() = default;

  // One of kPid, kPpid, kTid, kUid, kGid, kCpu, kTimestamp, kWallTimestamp, kVirtualTimestamp,
  // kProcessGroup, kPriority.
  virtual std::uint64_t builtin(plan::Builtin which) = 0;
  // kUserCaller or kUserStackDepth; nullopt: not known.
  virtual std::optional<std::uint64_t> user_stack(plan::Builtin which) = 0;
  virtual std::optional<std::uint64_t> user_register(plan::UserRegister which) = 0;
  // Valid until the firing ends.
  virtual std::string_view execname() = 0;
  // Program::self_size bytes, 8-byte aligned, or none.
  virtual std::span<std::byte> self_area() = 0;
  // Those of its process; empty: those of the session's first.
  virtual std::span<std::byte> globals() = 0;
  virtual bool read(RemoteAddr from, std::span<std::byte> out) = 0;
  virtual bool write(RemoteAddr to, std::span<const std::byte> bytes) = 0;
  virtual bool is_progeny_of(std::int64_t pid) = 0;
  // false: it may not be sent one.
  virtual bool raise(int signal) = 0;
};

}  // namespace trapline::session
