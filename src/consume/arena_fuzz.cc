// Forges an arena and drains it. The input is a list of edits: each writes bytes somewhere into a
// well-formed arena or drains it, so that the fuzzer reaches rings, tables, slots and the free
// list; the drainer must end, and stay inside the mapping (which the sanitizers watch, as the arena
// is an allocation of its own).

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/cursor.h"
#include "consume/drainer.h"
#include "consume/test_arena.h"

namespace {

using namespace trapline;

plan::Program make_program() {
  plan::Program program;
  program.clauses.resize(2);
  program.clauses[0].has_record = true;
  program.clauses[0].record_size = 12;
  program.clauses[0].fields = {{0, {}}, {8, {plan::ValueKind::kString, false, 4}}};
  const plan::ValueType text{plan::ValueKind::kString, false, 32};
  for (int kind = 0; kind <= static_cast<int>(plan::AggregationKind::kLlquantize); ++kind) {
    plan::Aggregation aggregation;
    aggregation.kind = static_cast<plan::AggregationKind>(kind);
    aggregation.bins = 127;
    aggregation.parameters[0] = 10;
    aggregation.parameters[1] = 1;
    aggregation.parameters[2] = 125;
    aggregation.parameters[3] = 10;
    const std::uint32_t words[] = {1, 1, 1, 1, 2, 4, 127, 1, 127};
    aggregation.value_words = words[kind];
    aggregation.sparse = kind == static_cast<int>(plan::AggregationKind::kLquantize);
    if (kind % 2 == 1) aggregation.keys = {text, {}};
    if (kind == 0) {
      aggregation.direct = true;
      aggregation.direct_words = 1;
      program.direct_size = 8;
    }
    program.aggregations.push_back(aggregation);
  }
  return program;
}

void edit(consume::TestArena& arena, Cursor& input) {
  const auto where = input.read<std::uint8_t>();
  const auto offset = input.read<std::uint16_t>();
  const auto size = input.read<std::uint8_t>() % 32u;
  const auto bytes = input.read_bytes(std::min<std::size_t>(size, input.remaining()));
  const wire::Layout& layout = arena.layout();
  std::uint64_t base = 0;
  if (where % 4 == 1) base = layout.slots + (where / 4 % 2 != 0 ? layout.slot_stride : 0);
  if (where % 4 == 2) base = layout.slots + std::uint64_t{layout.slot_count} * layout.slot_stride;
  if (where % 4 == 3) base = layout.chunks + std::uint64_t{where / 4u} % 8 * wire::kChunkSize;
  const std::uint64_t at = base + offset;
  if (at + bytes.size() > arena.bytes().size()) return;
  std::copy(bytes.begin(), bytes.end(), arena.bytes().begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const plan::Program program = make_program();
  consume::TestArena arena(
      {.direct_size = program.direct_size, .buffer_bytes = wire::kMinChunks * wire::kChunkSize});
  consume::AggregationStore store(program);
  auto drainer = consume::Drainer::create(arena.bytes(), arena.layout(), program);
  TL_CHECK(drainer.has_value());
  drainer->set_barrier([]() -> Result<> { return {}; });
  {
    consume::BodyWriter body(arena, 0);
    body.enter();
    body.record(0, 1, std::as_bytes(std::span("0123456789a")));
    const std::uint64_t value = 1;
    body.entry(2, {}, std::span(&value, 1));
  }
  Cursor input(std::as_bytes(std::span(data, size)));
  while (input.remaining() > 0) {
    const auto command = input.read<std::uint8_t>();
    if (command % 8 != 0) {
      edit(arena, input);
      continue;
    }
    const auto kind = command % 16 == 0 ? consume::DrainKind::kRunning : consume::DrainKind::kFinal;
    const auto result = drainer->drain(store, kind, command / 16 * 10);
    for (const auto& record : result.records) {
      TL_CHECK(record.clause < program.clauses.size());
      for (const auto& field : program.clauses[record.clause].fields) {
        consume::decode_field(field, record.payload);
      }
    }
    for (const auto& busy : result.busy) drainer->abandon_level(busy.slot, busy.level);
  }
  drainer->drain(store, consume::DrainKind::kFinal);
  std::vector<std::uint32_t> all(program.aggregations.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    all[i] = i;
    store.rows(std::span(&all[i], 1), {});
    store.truncate(i, 1);
  }
  return 0;
}
