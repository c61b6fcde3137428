#include "session/outside_engine.h"

#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "isa/x86_64/emulate.h"
#include "session/clock.h"
#include "session/user_registers.h"

namespace trapline::session {

namespace {

constexpr std::uint64_t kWord = 8;
constexpr unsigned kArgumentRegisters = 6;

isa::MachineState flow_state(const target::Registers& registers) {
  isa::MachineState state;
  state.general[1] = registers.raw.rcx;  // what branches look at
  state.flags = registers.raw.eflags;
  state.pc = registers.raw.rip;
  return state;
}

bool is_exit(isa::PointKind kind) {
  return kind == isa::PointKind::kReturn || kind == isa::PointKind::kTail ||
         kind == isa::PointKind::kFallThrough;
}

bool copy_from(Pid pid, RemoteAddr address, std::span<std::byte> out) {
  if (out.empty()) return true;
  const ::iovec local{out.data(), out.size()};
  const ::iovec remote{reinterpret_cast<void*>(address.value()), out.size()};
  return ::process_vm_readv(pid.value, &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(out.size());
}

}  // namespace

OutsideEngine::OutsideEngine(const plan::Program& program, Pid pid, std::span<std::byte> arena,
                             const wire::Layout& layout, std::uint64_t most_bytes)
    : program_(program),
      pid_(pid),
      header_(reinterpret_cast<wire::Header*>(arena.data())),
      globals_(arena.subspan(layout.globals, program.globals_size)),
      most_bytes_(most_bytes),
      this_area_(program),
      store_(program) {}

void OutsideEngine::add(const ProbeBatch& batch, const probes::ModuleCache& modules,
                        std::span<const EnabledProbe> probes) {
  const std::lock_guard lock(mutex_);
  for (const probes::ModuleSites& module : batch.sites.plans.modules) {
    const LoadBias bias = modules.module(module.module).bias;
    for (const isa::SitePlan& site : module.sites) {
      std::vector<Point>& points = points_[bias.to_remote(site.site)];
      points.clear();  // of a module that was there before
      for (const isa::PlannedPoint& planned : site.points) {
        const probes::PointUse& use = batch.sites.plans.uses[planned.tag];
        if (!batch.sites.is_probe(use.probe)) continue;
        const std::uint32_t probe = batch.sites.probes[use.probe];
        const auto& usdt = std::get<PidPoint>(probes[probe].what).function->usdt;
        const std::string provider = usdt ? usdt->provider : "pid";
        points.push_back({probe, probes[probe].name, probes[probe].clauses, planned.kind,
                          use.offset, site.original, provider + std::to_string(pid_.value),
                          use.usdt, bias});
      }
    }
  }
}

std::uint32_t OutsideEngine::state() const {
  return __atomic_load_n(&header_->state, __ATOMIC_ACQUIRE);
}

void OutsideEngine::hit(Tid tid, RemoteAddr at, const target::Registers& registers) {
  const std::lock_guard lock(mutex_);
  const auto found = points_.find(at);
  if (found == points_.end()) return;
  for (const Point& point : found->second) {
    // A conditional jump out of a function is a return only if it is taken.
    if (point.kind == isa::PointKind::kTail &&
        !isa::is_taken(point.instruction, flow_state(registers)))
      continue;
    fire(point, tid, registers);
  }
}

void OutsideEngine::fire(const Point& point, Tid tid, const target::Registers& registers) {
  if ((state() & (wire::kActive | wire::kExiting)) != wire::kActive) return;
  firing_ = {&point, tid, &registers};
  (void)interp::run_firing(program_, point.clauses, *this, this_area_);
  firing_ = {};
}

void OutsideEngine::thread_ended(Tid tid) {
  const std::lock_guard lock(mutex_);
  self_.erase(tid.value);
}

OutsideEngine::Taken OutsideEngine::take(consume::AggregationStore& store, std::uint64_t horizon) {
  const std::lock_guard lock(mutex_);
  Taken taken;
  taken.drops = std::exchange(drops_, {});
  store.absorb(store_);
  const auto late = std::ranges::find_if(
      records_, [horizon](const consume::Record& record) { return record.tsc > horizon; });
  taken.records.assign(std::make_move_iterator(records_.begin()), std::make_move_iterator(late));
  records_.erase(records_.begin(), late);
  bytes_ = 0;
  for (const consume::Record& record : records_)
    bytes_ += record.payload.size() + sizeof(consume::Record);
  return taken;
}

// ------------------------------------------------------------------------------------------------
// what the process says

// 0: what rsp points to.
std::optional<std::uint64_t> OutsideEngine::word_on_stack(std::uint64_t index) const {
  std::uint64_t value = 0;
  const RemoteAddr at = firing_.registers->sp() + index * kWord;
  if (!copy_from(pid_, at, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> OutsideEngine::go_argument(unsigned n) const {
  const ::user_regs_struct& r = firing_.registers->raw;
  const unsigned long long registers[] = {r.rax, r.rbx, r.rcx, r.rdi, r.rsi,
                                          r.r8,  r.r9,  r.r10, r.r11};
  if (n < std::size(registers)) return registers[n];
  return word_on_stack(1 + n - std::size(registers));
}

std::optional<std::uint64_t> OutsideEngine::usdt_argument(unsigned n) const {
  const std::vector<isa::Operand>& operands = firing_.point->usdt->operands;
  if (n >= operands.size()) return 0;
  const ::user_regs_struct& r = firing_.registers->raw;
  return isa::evaluate(operands[n],
                       {r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10,
                        r.r11, r.r12, r.r13, r.r14, r.r15},
                       firing_.point->bias, [&](RemoteAddr from, std::span<std::byte> to) {
                         return copy_from(pid_, from, to);
                       });
}

std::optional<std::uint64_t> OutsideEngine::argument(unsigned n) {
  const ::user_regs_struct& r = firing_.registers->raw;
  if (is_exit(firing_.point->kind))
    return n == 0 ? firing_.point->offset : n == 1 ? std::uint64_t{r.rax} : 0;
  if (firing_.point->usdt) return usdt_argument(n);
  if (firing_.point->kind == isa::PointKind::kGoEntry) return go_argument(n);
  if (firing_.point->kind == isa::PointKind::kGoStackEntry) return word_on_stack(1 + n);
  const unsigned long long registers[] = {r.rdi, r.rsi, r.rdx, r.rcx, r.r8, r.r9};
  if (n < kArgumentRegisters) return registers[n];
  return word_on_stack(1 + n - kArgumentRegisters);
}

// Time on a processor, as the scheduler counts it.
std::uint64_t OutsideEngine::virtual_time() const {
  std::ifstream file("/proc/" + std::to_string(pid_.value) + "/task/" +
                     std::to_string(firing_.tid.value) + "/schedstat");
  std::uint64_t time = 0;
  file >> time;
  return time;
}

std::uint32_t OutsideEngine::cpu() const {
  std::ifstream file("/proc/" + std::to_string(pid_.value) + "/task/" +
                     std::to_string(firing_.tid.value) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  constexpr int kFieldsBefore = 37;  // between the name's end and `processor`, the 39th of all
  std::size_t at = text.rfind(')');
  for (int n = 0; n < kFieldsBefore && at != std::string::npos; ++n) at = text.find(' ', at + 1);
  if (at == std::string::npos) return 0;
  std::uint32_t number = 0;
  std::from_chars(text.data() + at + 1, text.data() + text.size(), number);
  return number;
}

std::uint64_t OutsideEngine::builtin(plan::Builtin which) {
  switch (which) {
    case plan::Builtin::kPid:
      return static_cast<std::uint64_t>(header_->pid);
    case plan::Builtin::kPpid:
      return static_cast<std::uint64_t>(header_->ppid);
    case plan::Builtin::kTid:
      return thread_key();
    case plan::Builtin::kUid:
      return header_->uid;
    case plan::Builtin::kGid:
      return header_->gid;
    case plan::Builtin::kCpu:
      return cpu();
    case plan::Builtin::kProbeId:
      return firing_.point->name.id;
    case plan::Builtin::kTimestamp:
      if (firing_.timestamp == 0) firing_.timestamp = Clock::monotonic_ns();
      return firing_.timestamp;
    case plan::Builtin::kWallTimestamp:
      return Clock::wall_ns();
    case plan::Builtin::kVirtualTimestamp:
      return virtual_time();
    case plan::Builtin::kRandom:
      return random_() & 0x7fffffff;
    case plan::Builtin::kProcessGroup:
      return static_cast<std::uint64_t>(::getpgid(pid_.value));
    case plan::Builtin::kPriority: {
      const auto stat = target::read_stat(pid_, firing_.tid);
      return stat ? static_cast<std::uint64_t>(kernel_priority(*stat)) : 0;
    }
    default:
      return 0;  // errno: no probe of ours is in a system call
  }
}

// Of callers, only the one whose return address is on top of the stack: at a function's first
// instruction and at its returns.
std::optional<std::uint64_t> OutsideEngine::user_stack(plan::Builtin which) {
  const bool on_top = firing_.point->kind == isa::PointKind::kReturn ||
                      (!is_exit(firing_.point->kind) && firing_.point->offset == 0);
  if (which != plan::Builtin::kUserCaller || !on_top) return std::nullopt;
  return word_on_stack(0);
}

std::optional<std::uint64_t> OutsideEngine::user_register(plan::UserRegister which) {
  return register_of(firing_.registers->raw, which);
}

std::uint64_t OutsideEngine::epid(std::uint32_t clause) {
  return ((std::uint64_t{firing_.point->probe} + 1) << 16) + clause + 1;
}

std::string_view OutsideEngine::builtin_string(plan::Builtin which) {
  switch (which) {
    case plan::Builtin::kExecname:
      return reinterpret_cast<const char*>(header_) + header_->execname;
    case plan::Builtin::kProbeProvider:
      return firing_.point->provider;
    case plan::Builtin::kProbeModule:
      return firing_.point->name.module;
    case plan::Builtin::kProbeFunction:
      return firing_.point->name.function;
    case plan::Builtin::kProbeName:
      return firing_.point->name.name;
    default:
      return {};
  }
}

std::span<std::byte> OutsideEngine::self_area() {
  std::vector<std::uint64_t>& words = self_[firing_.tid.value];
  words.resize((program_.self_size + kWord - 1) / kWord);
  return std::as_writable_bytes(std::span(words));
}

bool OutsideEngine::read_target(RemoteAddr address, std::span<std::byte> out) {
  return copy_from(pid_, address, out);
}

// ------------------------------------------------------------------------------------------------
// what is done to it

bool OutsideEngine::write_target(RemoteAddr address, std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  const ::iovec local{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const ::iovec remote{reinterpret_cast<void*>(address.value()), bytes.size()};
  return ::process_vm_writev(pid_.value, &local, 1, &remote, 1, 0) ==
         static_cast<ssize_t>(bytes.size());
}

bool OutsideEngine::is_progeny_of(std::int64_t pid) {
  return std::ranges::any_of(header_->ancestors,
                             [pid](std::int32_t one) { return one != 0 && one == pid; });
}

bool OutsideEngine::raise(int signal) { return ::kill(pid_.value, signal) == 0; }

// The thread stands still meanwhile, as it would spin; so does every other one that hits a probe.
void OutsideEngine::chill(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// ------------------------------------------------------------------------------------------------
// what is kept

void OutsideEngine::aggregate(std::uint32_t aggregation, std::span<const std::uint64_t> key,
                              std::int64_t value, std::int64_t weight) {
  if (!store_.update(aggregation, key, value, weight)) ++drops_.aggregation;
}

bool OutsideEngine::reserve(std::uint32_t clause) {
  const std::uint64_t size = program_.clauses[clause].record_size + sizeof(consume::Record);
  if (bytes_ + size <= most_bytes_) return true;
  ++drops_.record;
  return false;
}

void OutsideEngine::commit(std::uint32_t clause, std::span<const std::byte> payload,
                           std::uint32_t speculation) {
  add_record(clause, wire::kRecordData, payload, speculation);
}

void OutsideEngine::fault(std::uint32_t clause, plan::Fault fault, std::uint32_t instruction,
                          std::uint64_t address) {
  const wire::FaultPayload payload{static_cast<std::uint32_t>(fault), instruction, address};
  add_record(clause, wire::kRecordFault, std::as_bytes(std::span(&payload, 1)), 0);
}

// As a body does: nothing fires any more.
void OutsideEngine::exit(std::int64_t) {
  __atomic_fetch_or(&header_->state, wire::kExiting, __ATOMIC_ACQ_REL);
}

void OutsideEngine::add_record(std::uint32_t clause, std::uint16_t kind,
                               std::span<const std::byte> payload, std::uint32_t speculation) {
  consume::Record record;
  record.speculation = speculation;
  record.clause = clause;
  record.kind = kind;
  record.probe = firing_.point->probe;
  record.cpu = cpu();
  record.tid = static_cast<std::uint32_t>(firing_.tid.value);
  record.tsc = header_->tsc_mult != 0 ? Clock::read_tsc() : Clock::monotonic_ns();
  record.payload.assign(payload.begin(), payload.end());
  bytes_ += payload.size() + sizeof(consume::Record);
  records_.push_back(std::move(record));
}

}  // namespace trapline::session
