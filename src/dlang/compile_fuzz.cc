// The whole front end over arbitrary text. The first byte chooses how the text comes in; a plan
// that is made must be one that its readers can rely on.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "diag/render.h"
#include "dlang/compile.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_plan(const trapline::plan::Program& program) {
  for (const auto& clause : program.clauses) {
    require(!clause.code.empty());
    require(clause.code.back().op == trapline::plan::Op::kEnd);
    for (std::size_t i = 0; i < clause.code.size(); ++i) {
      const auto& instruction = clause.code[i];
      const auto reg = [&](trapline::plan::Reg r) {
        return r == trapline::plan::kNoReg || r < clause.register_count;
      };
      require(reg(instruction.dst) && reg(instruction.a) && reg(instruction.b));
      for (const auto& operand : instruction.operands) require(reg(operand.reg));
      if (instruction.target != trapline::plan::kNone) {
        require(instruction.target > i && instruction.target < clause.code.size());
      }
      require(instruction.scratch == trapline::plan::kNone ||
              instruction.scratch < clause.scratch_size);
    }
    for (const auto& field : clause.fields)
      require(field.offset + field.type.size <= clause.record_size);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  trapline::dlang::CompileRequest request;
  trapline::dlang::SourceInput input;
  input.name = "fuzz";
  input.kind = static_cast<trapline::dlang::InputKind>(data[0] % 6);
  input.text.assign(reinterpret_cast<const char*>(data + 1), size - 1);
  request.sources.push_back(input);
  request.macros.arguments = {"1", "x", "\"quoted\""};
  if (data[0] & 0x40) request.macros.target = 42;
  const auto result = trapline::dlang::compile(request);
  require(result.program.has_value() != result.diagnostics.has_errors());
  if (result.program) {
    check_plan(*result.program);
    require(!trapline::plan::to_text(*result.program).empty());
  }
  const std::string text = trapline::diag::render_all(result.sources, result.diagnostics);
  require(result.program.has_value() || !text.empty());
  return 0;
}
