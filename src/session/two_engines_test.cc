// The two sides of a comparison. See test_two_engines.h.
//
// Both have the same thread id, the same builtins, and read the same memory, that of the test. What
// is read back is read by the consumer's code (records, aggregations) or straight from the globals
// (variables, cells of arrays).

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "codegen/test_target.h"
#include "consume/aggregation_store.h"
#include "consume/drainer.h"
#include "consume/value.h"
#include "interp/environment.h"
#include "interp/run.h"
#include "session/test_two_engines.h"
#include "wire/dynvar.h"

namespace trapline::session::test {
namespace {

using plan::ValueKind;

std::string show(const consume::Value& value) {
  if (value.type.kind == ValueKind::kInteger) return fmt::format("{}", value.as_signed());
  return fmt::format("{:?}", fmt::string_view(value.bytes));
}

// ------------------------------------------------------------------------------ what was left
// behind

class Accounts {
 public:
  Accounts(const plan::Program& program, std::span<const Part> parts)
      : program_(program), parts_(parts), all_(parts.size()) {}

  void say(std::size_t part, std::string line) { all_[part].push_back(std::move(line)); }

  void add(const consume::Record& record) {
    const std::size_t at = part_of_clause(record.clause);
    const std::uint32_t clause = record.clause - parts_[at].first_clause;
    if (record.kind == wire::kRecordFault) {
      wire::FaultPayload fault{};
      std::memcpy(&fault, record.payload.data(), std::min(sizeof(fault), record.payload.size()));
      return say(at, fmt::format("clause {}: fault {} at {}, address {:#x}", clause, fault.fault,
                                 fault.instruction, fault.address));
    }
    std::string line = fmt::format("clause {}: record", clause);
    for (const plan::Field& field : program_.clauses[record.clause].fields) {
      line += " " + show(consume::decode_field(field, record.payload));
    }
    say(at, std::move(line));
  }

  void add_drops(const consume::Drops& drops) {
    if (!drops.any()) return;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      say(i, fmt::format("drops: record {} aggregation {} dynamic {} level {} slot {} malformed {}",
                         drops.record, drops.aggregation, drops.dynamic, drops.level, drops.no_slot,
                         drops.malformed));
    }
  }

  void add_variables(std::span<const std::byte> globals, std::span<const std::byte> self) {
    for (const plan::Variable& variable : program_.variables) {
      if (variable.scope == plan::Scope::kThis) continue;
      const auto part = part_of_name(variable.name);
      if (!part) continue;
      if (variable.is_array) {
        add_cells(*part, variable, globals);
      } else {
        const auto area = variable.scope == plan::Scope::kSelf ? self : globals;
        const plan::Field field{static_cast<std::uint32_t>(variable.offset), variable.type};
        say(*part, fmt::format("{} = {}", variable.name, show(consume::decode_field(field, area))));
      }
    }
  }

  void add_aggregations(const consume::AggregationStore& store) {
    for (std::uint32_t i = 0; i < program_.aggregations.size(); ++i) {
      const auto part = part_of_name(program_.aggregations[i].name);
      if (!part) continue;
      const std::uint32_t only[] = {i};
      std::vector<std::string> lines;
      for (const consume::Row& row : store.rows(only, {})) lines.push_back(show(i, row));
      std::ranges::sort(lines);  // rows of equal value may come in any order
      for (std::string& line : lines) say(*part, std::move(line));
    }
  }

  std::vector<Account> take() { return std::move(all_); }

 private:
  std::size_t part_of_clause(std::uint32_t clause) const {
    const auto after = std::ranges::upper_bound(parts_, clause, {}, &Part::first_clause);
    return static_cast<std::size_t>(after - parts_.begin()) - 1;
  }
  // "v12_0" belongs to the program of number 12.
  std::optional<std::size_t> part_of_name(const std::string& name) const {
    const auto number = static_cast<std::uint32_t>(std::strtoul(name.c_str() + 1, nullptr, 10));
    const auto found = std::ranges::lower_bound(parts_, number, {}, &Part::number);
    if (found == parts_.end() || found->number != number) return std::nullopt;
    return static_cast<std::size_t>(found - parts_.begin());
  }

  void add_cells(std::size_t part, const plan::Variable& array,
                 std::span<const std::byte> globals) {
    std::vector<plan::ValueType> types = array.keys;
    if (array.scope == plan::Scope::kSelf) types.insert(types.begin(), plan::ValueType{});
    std::vector<std::string> lines;
    for (std::uint32_t i = 0; i < array.capacity; ++i) {
      const auto bytes =
          globals.subspan(array.offset + std::uint64_t{i} * array.cell_size, array.cell_size);
      wire::DynvarCell cell;
      std::memcpy(&cell, bytes.data(), sizeof(cell));
      const auto state = static_cast<std::uint32_t>(cell.state & 7);
      if (state == wire::kCellEmpty || state == wire::kCellTombstone) continue;
      std::vector<std::uint64_t> key(cell.key_size / 8);
      std::memcpy(key.data(), bytes.data() + sizeof(cell), cell.key_size);
      std::string line = fmt::format("{}[", array.name);
      const auto components = consume::decode_key(types, key);
      if (!components) line += "malformed ";
      if (components) {
        for (const consume::Value& component : *components) line += show(component) + " ";
      }
      const std::uint32_t at = array.cell_size - wire::round_up_to_word(array.type.size);
      line += fmt::format("] = {}, state {}", show(consume::decode_field({at, array.type}, bytes)),
                          state);
      lines.push_back(std::move(line));
    }
    std::ranges::sort(lines);
    for (std::string& line : lines) say(part, std::move(line));
  }

  std::string show(std::uint32_t aggregation, const consume::Row& row) const {
    std::string line = fmt::format("@{}[", program_.aggregations[aggregation].name);
    for (const consume::Value& component : *row.components) line += show(component) + " ";
    const consume::Datum& datum = *row.data[0];
    line += fmt::format("] count {} value {} squares {:x}:{:x}", datum.count, datum.value,
                        static_cast<std::uint64_t>(datum.squares >> 64),
                        static_cast<std::uint64_t>(datum.squares));
    for (const auto& [bin, weight] : datum.bins) line += fmt::format(" {}:{}", bin, weight);
    return line;
  }
  static std::string show(const consume::Value& value) { return test::show(value); }

  const plan::Program& program_;
  std::span<const Part> parts_;
  std::vector<Account> all_;
};

std::vector<std::uint32_t> clauses_of(const Part& part) {
  std::vector<std::uint32_t> clauses(part.clause_count);
  for (std::uint32_t i = 0; i < part.clause_count; ++i) clauses[i] = part.first_clause + i;
  return clauses;
}

// --------------------------------------------------------------------------------- the interpreter

// The world as codegen's test target shows it to bodies.
class Reference final : public interp::Environment {
 public:
  Reference(const plan::Program& program, consume::AggregationStore& store, Accounts& accounts)
      : store_(store),
        accounts_(accounts),
        globals_((program.globals_size + 7) / 8),
        self_((program.self_size + 7) / 8) {}

  void set_arguments(const Arguments& arguments) { arguments_ = arguments; }
  std::span<const std::byte> globals_bytes() const { return std::as_bytes(std::span(globals_)); }
  std::span<const std::byte> self_bytes() const { return std::as_bytes(std::span(self_)); }
  const consume::Drops& drops() const { return drops_; }

 private:
  std::optional<std::uint64_t> argument(unsigned n) override { return arguments_[n]; }
  std::uint64_t builtin(plan::Builtin which) override {
    switch (which) {
      case plan::Builtin::kPid:
        return 4242;
      case plan::Builtin::kPpid:
        return 4241;
      case plan::Builtin::kUid:
        return 1000;
      case plan::Builtin::kGid:
        return 1001;
      case plan::Builtin::kProbeId:
        return 31;
      default:
        return 0;
    }
  }
  std::uint64_t epid(std::uint32_t clause) override { return (8U << 16) + clause + 1; }
  std::string_view builtin_string(plan::Builtin which) override {
    switch (which) {
      case plan::Builtin::kExecname:
        return "tested";
      case plan::Builtin::kProbeProvider:
        return "pid4242";
      case plan::Builtin::kProbeModule:
        return "libc.so.6";
      case plan::Builtin::kProbeFunction:
        return "malloc";
      case plan::Builtin::kProbeName:
        return "entry";
      default:
        return {};
    }
  }
  std::span<std::byte> globals() override { return std::as_writable_bytes(std::span(globals_)); }
  std::span<std::byte> self_area() override { return std::as_writable_bytes(std::span(self_)); }
  std::uint64_t thread_key() override { return static_cast<std::uint64_t>(::gettid()); }

  bool read_target(RemoteAddr address, std::span<std::byte> out) override {
    if (out.empty()) return true;
    if (address.value() >= Memory::kStart && address.value() < Memory::kEnd &&
        out.size() <= Memory::kEnd - address.value()) {
      std::memcpy(out.data(), reinterpret_cast<const void*>(address.value()), out.size());
      return true;
    }
    const iovec local{out.data(), out.size()};
    const iovec remote{reinterpret_cast<void*>(address.value()), out.size()};
    return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) ==
           static_cast<ssize_t>(out.size());
  }

  bool write_target(RemoteAddr, std::span<const std::byte>) override { return false; }
  bool is_progeny_of(std::int64_t pid) override { return pid == 4242 || pid == 4241; }
  bool raise(int) override { return true; }
  void chill(std::chrono::nanoseconds) override {}
  void aggregate(std::uint32_t aggregation, std::span<const std::uint64_t> key, std::int64_t value,
                 std::int64_t weight) override {
    if (!store_.update(aggregation, key, value, weight)) ++drops_.malformed;
  }
  bool reserve(std::uint32_t) override { return true; }
  void commit(std::uint32_t clause, std::span<const std::byte> payload,
              std::uint32_t speculation) override {
    record(clause, wire::kRecordData, payload, speculation);
  }
  void fault(std::uint32_t clause, plan::Fault fault, std::uint32_t instruction,
             std::uint64_t address) override {
    const wire::FaultPayload payload{static_cast<std::uint32_t>(fault), instruction, address};
    record(clause, wire::kRecordFault, std::as_bytes(std::span(&payload, 1)), 0);
  }
  void exit(std::int64_t) override {}
  void dynamic_drop() override { ++drops_.dynamic; }
  void aggregation_drop() override { ++drops_.aggregation; }
  void speculation_drop() override { ++drops_.speculation; }

  void record(std::uint32_t clause, std::uint16_t kind, std::span<const std::byte> payload,
              std::uint32_t speculation) {
    consume::Record made;
    made.speculation = speculation;
    made.clause = clause;
    made.kind = kind;
    made.payload.assign(payload.begin(), payload.end());
    accounts_.add(made);
  }

  consume::AggregationStore& store_;
  Accounts& accounts_;
  std::vector<std::uint64_t> globals_;
  std::vector<std::uint64_t> self_;
  Arguments arguments_{};
  consume::Drops drops_;
};

// ------------------------------------------------------------------------------------ machine code

// true: every register that a body preserves is as it was; r10 is the trampoline's, r11 free.
bool is_preserved(const codegen::test::CallFrame& frame) {
  for (std::size_t i = 0; i < frame.in.size(); ++i) {
    if (i != codegen::test::kR10 && i != codegen::test::kR11 && frame.in[i] != frame.out[i])
      return false;
  }
  return true;
}

codegen::test::CallFrame frame_of(const codegen::test::Target& target, const Arguments& arguments) {
  codegen::test::CallFrame frame = target.frame(
      {arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]});
  for (const std::size_t i : {0, 1, 6, 11, 12, 13, 14})
    frame.in[i] = 0x1111'1111'1111'1111 * (i + 1);
  std::copy(arguments.begin() + 6, arguments.end(), frame.stack.begin() + 1);
  return frame;
}

}  // namespace

std::vector<Account> run_interpreter(const plan::Program& program, std::span<const Part> parts) {
  consume::AggregationStore store(program);
  Accounts accounts(program, parts);
  Reference reference(program, store, accounts);
  interp::ThisArea area(program);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto clauses = clauses_of(parts[i]);
    bool exited = false;
    for (const Arguments& arguments : parts[i].firings) {
      reference.set_arguments(arguments);
      exited = interp::run_firing(program, clauses, reference, area) == interp::Outcome::kExit;
      if (exited) break;
    }
    if (exited) accounts.say(i, "exit");
  }
  accounts.add_drops(reference.drops());
  accounts.add_variables(reference.globals_bytes(), reference.self_bytes());
  accounts.add_aggregations(store);
  return accounts.take();
}

Result<std::vector<Account>> run_native(const plan::Program& program, std::span<const Part> parts,
                                        codegen::Effort effort) {
  using codegen::test::Target;
  std::vector<codegen::BodyRequest> bodies;
  for (const Part& part : parts) bodies.push_back({codegen::SiteKind::kEntry, clauses_of(part)});
  Target target(program, std::move(bodies),
                {.buffer_bytes = 16 << 20,
                 .program = Target::Layout::kDone,
                 .refusal = Target::Refusal::kIsKept,
                 .effort = effort});
  if (target.refused()) return *target.refused();
  Accounts accounts(program, parts);

  std::vector<std::string> ends(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    target.header().state = wire::kActive;
    bool preserved = true;
    for (const Arguments& arguments : parts[i].firings) {
      codegen::test::CallFrame frame = frame_of(target, arguments);
      trapline_test_call(target.body(i), &target.site(), &frame);
      preserved = preserved && is_preserved(frame);
    }
    if ((target.header().state & wire::kExiting) != 0) ends[i] = "exit";
    if (!preserved) ends[i] += " registers changed";
  }

  consume::AggregationStore store(program);
  auto drainer =
      consume::Drainer::create({target.arena(), target.layout().size}, target.layout(), program);
  EXPECT_TRUE(drainer.has_value());
  drainer->set_barrier([] { return Result<>(); });
  const consume::DrainResult drained = drainer->drain(store, consume::DrainKind::kFinal);
  for (const consume::Record& record : drained.records) accounts.add(record);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!ends[i].empty()) accounts.say(i, ends[i]);
  }
  accounts.add_drops(drained.new_drops);
  const std::vector<wire::Slot*> slots = target.slots();
  const std::vector<std::byte> no_self(program.self_size);
  std::span<const std::byte> self = no_self;
  if (!slots.empty())
    self = {reinterpret_cast<std::byte*>(slots.front()) + target.layout().slot_self,
            program.self_size};
  accounts.add_variables({target.globals(), program.globals_size}, self);
  accounts.add_aggregations(store);
  return accounts.take();
}

}  // namespace trapline::session::test
