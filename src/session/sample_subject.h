// The thread that a sample of profile-N found on a processor.
//
// It has gone on since: what the sample does not hold is asked of the system when a clause wants
// it, and is then a moment later. Memory is read as it is by then; only processes that are traced
// can be written to or sent signals. uid and gid are -1 where the process has ended before anybody
// asked.

#pragma once

#include <functional>

#include "session/subject.h"
#include "target/cpu_sample.h"

namespace trapline::session {

class SampleSubject final : public Subject {
 public:
  // What the session knows of the sample's process.
  struct Place {
    bool traced = false;
    std::span<std::byte> globals;
    std::span<std::byte> self;
  };
  SampleSubject(const target::CpuSample& sample, Place place) : sample_(sample), place_(place) {}

  std::uint64_t builtin(plan::Builtin which) override;
  // Frames of a stack that nobody stopped cannot be told without unwinding.
  std::optional<std::uint64_t> user_stack(plan::Builtin) override { return std::nullopt; }
  std::optional<std::uint64_t> user_register(plan::UserRegister which) override;
  std::string_view execname() override { return sample_.name; }
  std::span<std::byte> self_area() override { return place_.self; }
  std::span<std::byte> globals() override { return place_.globals; }
  bool read(RemoteAddr from, std::span<std::byte> out) override;
  bool write(RemoteAddr to, std::span<const std::byte> bytes) override;
  bool is_progeny_of(std::int64_t pid) override;
  bool raise(int signal) override;

 private:
  const target::CpuSample& sample_;
  Place place_;
};

}  // namespace trapline::session
