// Updates of aggregations: direct cells for those without keys, table entries for the others. See
// body_emitter.h.

#include "codegen/body_emitter.h"

namespace trapline::codegen {

using plan::Aggregation;
using plan::AggregationKind;
using plan::kNoReg;
using plan::ValueKind;

namespace {

constexpr std::size_t kShortKey = 2;  // words that tl_find_short compares in registers

// Initial, as the runtime's table.h numbers it.
std::uint64_t initial_of(AggregationKind kind) {
  if (kind == AggregationKind::kMin) return 1;
  return kind == AggregationKind::kMax ? 2 : 0;
}

bool is_histogram(AggregationKind kind) {
  return kind == AggregationKind::kQuantize || kind == AggregationKind::kLquantize ||
         kind == AggregationKind::kLlquantize;
}

}  // namespace

llvm::Value* BodyEmitter::bin_of(const Aggregation& aggregation, Value* value) {
  const auto parameter = [&](int n) {
    return static_cast<std::uint64_t>(aggregation.parameters[n]);
  };
  switch (aggregation.kind) {
    case AggregationKind::kQuantize:
      return call("tl_quantize_bin", value);
    case AggregationKind::kLquantize:
      return call("tl_lquantize_bin", value, constant(parameter(0)), constant(parameter(1)),
                  constant(parameter(2)));
    default: {
      const std::uint64_t shape =
          parameter(0) | parameter(1) << 16 | parameter(2) << 32 | parameter(3) << 48;
      return call("tl_llquantize_bin", value, constant(shape));
    }
  }
}

void BodyEmitter::emit_direct(const Aggregation& aggregation, const Instruction& instruction) {
  Value* offset = constant(aggregation.direct_offset);
  Value* weight = instruction.b == kNoReg ? constant(1) : get(instruction.b);
  if (aggregation.kind == AggregationKind::kCount) {
    call("tl_direct_count", slot_, offset, weight);
  } else if (aggregation.kind == AggregationKind::kSum) {
    call("tl_direct_add", slot_, offset, constant(0), get(instruction.a));
  } else {
    call("tl_direct_add", slot_, offset, bin_of(aggregation, get(instruction.a)), weight);
  }
}

// The entry's value; null: dropped and counted.
llvm::Value* BodyEmitter::find_entry(const Aggregation& aggregation, const Instruction& instruction,
                                     Value* bin) {
  Value* number = constant(instruction.variable);
  Value* shape =
      constant(std::uint64_t{aggregation.value_words} << 2 | initial_of(aggregation.kind));
  std::vector<Value*> words;
  bool integers = true;
  for (const plan::Operand& operand : instruction.operands) {
    integers = integers && operand.type.kind == ValueKind::kInteger;
    if (integers) words.push_back(key_integer(operand));
  }
  if (bin != nullptr) words.push_back(bin);
  if (integers && words.size() <= kShortKey) {
    Value* count = builder_.getInt32(static_cast<std::uint32_t>(words.size()));
    words.resize(kShortKey, constant(0));
    return call("tl_find_short", site_, slot_, level_, epoch(), number, count, words[0], words[1],
                shape);
  }
  const Key key = write_key(instruction, {}, bin);
  Value* hash = call("tl_hash_words", call("tl_hash_start", number), key.address, key.words);
  Value* head = call("tl_entry_head", number, key.words, hash);
  return call("tl_find_long", site_, slot_, level_, key.address, head, shape);
}

void BodyEmitter::emit_aggregate(const Instruction& instruction) {
  const Aggregation& aggregation = program_.aggregations[instruction.variable];
  if (aggregation.direct) return emit_direct(aggregation, instruction);
  Value* weight = instruction.b == kNoReg ? constant(1) : get(instruction.b);
  Value* value = instruction.a == kNoReg ? constant(1) : get(instruction.a);
  Value* bin = is_histogram(aggregation.kind) ? bin_of(aggregation, value) : nullptr;
  Value* entry = find_entry(aggregation, instruction, aggregation.sparse ? bin : nullptr);
  Block* update = new_block("update");
  Block* after = new_block("updated");
  builder_.CreateCondBr(builder_.CreateIsNull(entry), after, update);
  builder_.SetInsertPoint(update);
  switch (aggregation.kind) {
    case AggregationKind::kCount:
      call("tl_add", entry, constant(0), weight);
      break;
    case AggregationKind::kSum:
      call("tl_add", entry, constant(0), value);
      break;
    case AggregationKind::kMin:
      call("tl_min", entry, value);
      break;
    case AggregationKind::kMax:
      call("tl_max", entry, value);
      break;
    case AggregationKind::kAvg:
      call("tl_average", entry, value);
      break;
    case AggregationKind::kStddev:
      call("tl_deviation", entry, value);
      break;
    case AggregationKind::kQuantize:
    case AggregationKind::kLquantize:
    case AggregationKind::kLlquantize:
      call("tl_add", entry, aggregation.sparse ? constant(0) : bin, weight);
      break;
  }
  go_to(after);
  builder_.SetInsertPoint(after);
}

}  // namespace trapline::codegen
