#include "session/tracer_environment.h"

#include <execinfo.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "session/ancestors.h"
#include "session/clock.h"
#include "session/user_registers.h"
#include "target/process.h"
#include "wire/arena.h"

namespace trapline::session {

namespace {

constexpr int kMostFrames = 127;  // as option maxframes says

std::uint64_t thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint32_t current_cpu() {
  const int cpu = sched_getcpu();
  return cpu < 0 ? 0 : static_cast<std::uint32_t>(cpu);
}

}  // namespace

TracerSubject::TracerSubject(TargetReader reader, TargetWriter writer, std::uint64_t self_size)
    : reader_(std::move(reader)),
      writer_(std::move(writer)),
      self_((self_size + 7) / 8),
      tid_(static_cast<std::uint32_t>(gettid())) {}

std::uint64_t TracerSubject::builtin(plan::Builtin which) {
  switch (which) {
    case plan::Builtin::kPid:
      return static_cast<std::uint64_t>(invoker_.pid.value);
    case plan::Builtin::kPpid:
      return static_cast<std::uint64_t>(invoker_.parent.value);
    case plan::Builtin::kTid:
      return tid_;
    case plan::Builtin::kUid:
      return getuid();
    case plan::Builtin::kGid:
      return getgid();
    case plan::Builtin::kCpu:
      return current_cpu();
    case plan::Builtin::kTimestamp:
      return Clock::monotonic_ns();
    case plan::Builtin::kWallTimestamp:
      return Clock::wall_ns();
    case plan::Builtin::kVirtualTimestamp:
      return thread_cpu_ns();
    case plan::Builtin::kProcessGroup:
      return static_cast<std::uint64_t>(::getpgrp());
    case plan::Builtin::kPriority: {
      const auto stat = target::read_stat(Pid{::getpid()}, Tid{static_cast<pid_t>(tid_)});
      return stat ? static_cast<std::uint64_t>(kernel_priority(*stat)) : 0;
    }
    default:
      return 0;
  }
}

std::optional<std::uint64_t> TracerSubject::user_stack(plan::Builtin which) {
  if (which == plan::Builtin::kUserCaller)
    return reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  std::vector<void*> frames(kMostFrames);
  return static_cast<std::uint64_t>(::backtrace(frames.data(), kMostFrames));
}

std::optional<std::uint64_t> TracerSubject::user_register(plan::UserRegister which) {
  if (which == plan::UserRegister::kTrap) return 0;  // it has not trapped to come here
  return register_of(own_registers(), which);
}

bool TracerSubject::is_progeny_of(std::int64_t pid) {
  for (const std::int32_t ancestor : ancestors(invoker_.pid)) {
    if (ancestor == pid) return true;
  }
  return false;
}

bool TracerSubject::raise(int signal) {
  (void)::kill(getpid(), signal);
  return true;
}

std::uint64_t tracer_pc() { return reinterpret_cast<std::uint64_t>(__builtin_return_address(0)); }

TracerEnvironment::TracerEnvironment(const plan::Program& program, std::span<std::byte> globals,
                                     consume::AggregationStore& store, TargetReader reader,
                                     TargetWriter writer)
    : program_(program),
      globals_(globals),
      store_(store),
      tracer_(std::move(reader), std::move(writer), program.self_size) {}

TracerEnvironment::Firing TracerEnvironment::begin(std::uint32_t probe, const plan::ProbeName& name,
                                                   const Arguments& arguments, Subject& subject) {
  Firing outer = std::exchange(firing_, {});
  firing_.this_area = std::make_unique<interp::ThisArea>(program_);
  firing_.this_area->begin_firing();
  firing_.subject = &subject;
  firing_.probe = probe;
  firing_.name = &name;
  firing_.arguments = arguments;
  return outer;
}

interp::Outcome TracerEnvironment::run(std::uint32_t clause) {
  return interp::run(program_, clause, *this, *firing_.this_area);
}

void TracerEnvironment::restore(Firing outer) { firing_ = std::move(outer); }

std::vector<consume::Record> TracerEnvironment::take_records() {
  return std::exchange(records_, {});
}

std::optional<std::uint64_t> TracerEnvironment::argument(unsigned n) {
  return n < firing_.arguments.size() ? firing_.arguments[n] : 0;
}

std::uint64_t TracerEnvironment::builtin(plan::Builtin which) {
  switch (which) {
    case plan::Builtin::kProbeId:
      return firing_.name->id;
    case plan::Builtin::kTimestamp:
      if (firing_.timestamp == 0) firing_.timestamp = subject().builtin(which);
      return firing_.timestamp;
    case plan::Builtin::kRandom:
      return random_() & 0x7fffffff;
    case plan::Builtin::kErrno:
      return 0;  // what fires here is in no system call's return
    default:
      return subject().builtin(which);
  }
}

// As bodies make it.
std::uint64_t TracerEnvironment::epid(std::uint32_t clause) {
  return ((std::uint64_t{firing_.probe} + 1) << 16) + clause + 1;
}

void TracerEnvironment::chill(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

std::string_view TracerEnvironment::builtin_string(plan::Builtin which) {
  switch (which) {
    case plan::Builtin::kExecname:
      return subject().execname();
    case plan::Builtin::kProbeProvider:
      return firing_.name->provider;
    case plan::Builtin::kProbeModule:
      return firing_.name->module;
    case plan::Builtin::kProbeFunction:
      return firing_.name->function;
    case plan::Builtin::kProbeName:
      return firing_.name->name;
    default:
      return {};
  }
}

void TracerEnvironment::aggregate(std::uint32_t aggregation, std::span<const std::uint64_t> key,
                                  std::int64_t value, std::int64_t weight) {
  if (!store_.update(aggregation, key, value, weight)) ++drops_.aggregation;
}

// The tracer's own records lie in ordinary memory: there is always room.
bool TracerEnvironment::reserve(std::uint32_t) { return true; }

void TracerEnvironment::commit(std::uint32_t clause, std::span<const std::byte> payload,
                               std::uint32_t speculation) {
  add_record(clause, wire::kRecordData, payload, speculation);
}

void TracerEnvironment::fault(std::uint32_t clause, plan::Fault fault, std::uint32_t instruction,
                              std::uint64_t address) {
  const wire::FaultPayload payload{static_cast<std::uint32_t>(fault), instruction, address};
  add_record(clause, wire::kRecordFault, std::as_bytes(std::span(&payload, 1)), 0);
}

// The record that carries the status says it all; see report.
void TracerEnvironment::exit(std::int64_t) {}

void TracerEnvironment::add_record(std::uint32_t clause, std::uint16_t kind,
                                   std::span<const std::byte> payload, std::uint32_t speculation) {
  consume::Record record;
  record.speculation = speculation;
  record.clause = clause;
  record.kind = kind;
  record.probe = firing_.probe;
  record.cpu = static_cast<std::uint32_t>(subject().builtin(plan::Builtin::kCpu));
  record.tid = static_cast<std::uint32_t>(subject().builtin(plan::Builtin::kTid));
  record.tsc = Clock::read_tsc();
  record.payload.assign(payload.begin(), payload.end());
  records_.push_back(std::move(record));
}

}  // namespace trapline::session
