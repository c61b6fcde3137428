// The code generator as a whole: check, emit, optimise, link, measure. See codegen.h.

#include "codegen/codegen.h"

#include <algorithm>
#include <string>

#include "codegen/body_emitter.h"
#include "codegen/module.h"
#include "codegen/object_reader.h"
#include "codegen/optimize.h"
#include "codegen/stack_bound.h"
#include "codegen/validate.h"

namespace trapline::codegen {
namespace {

// Of all bodies together: Effort::kByCount.
constexpr std::size_t kManyClauses = 100;

std::string body_name(std::size_t index) { return "trapline_body_" + std::to_string(index); }

// One attempt; `homes`: where each body keeps its registers. `stacks`, filled in: what each body
// uses.
struct Attempt {
  ObjectCode code;
  std::vector<std::uint32_t> stacks;
};

Result<Attempt> attempt(const plan::Program& program, const wire::Layout& layout,
                        std::span<const BodyRequest> bodies, const std::vector<RegisterHome>& homes,
                        Effort effort) {
  TL_TRY_ASSIGN(const auto module, Module::create(layout));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    names.push_back(body_name(i));
    BodyEmitter(*module, program, layout, bodies[i], homes[i], effort).emit(names.back());
  }
  TL_TRY_ASSIGN(const EmittedObject object, emit_object(*module, names, effort));
  TL_TRY_ASSIGN(LinkedObject linked,
                link_object(std::as_bytes(std::span(object.elf.data(), object.elf.size()))));

  Attempt result;
  ObjectCode& code = result.code;
  code.code = {0, linked.code_size};
  code.constants = {linked.constants_offset,
                    static_cast<std::uint32_t>(linked.bytes.size()) - linked.constants_offset};
  code.bytes = std::move(linked.bytes);
  for (const std::string& name : names) {
    const auto entry = linked.functions.find(name);
    if (entry == linked.functions.end())
      return Error(ErrorCode::kInternal, "code generation: a body got lost");
    code.entries.push_back(entry->second);
    TL_TRY_ASSIGN(const std::uint32_t stack, stack_bound(name, object.calls, linked.stack_sizes));
    result.stacks.push_back(stack);
    code.max_stack = std::max(code.max_stack, stack);
  }
  code.calls_gettid = true;  // tl_enter, under kEarly
  for (const char* reads : {"tl_read", "tl_copy_in", "tl_copy_in_text"}) {
    code.calls_process_vm_readv |= linked.functions.contains(reads);
  }
  code.calls_process_vm_writev = linked.functions.contains("tl_copy_out");
  code.calls_kill = linked.functions.contains("tl_raise");
  code.calls_clock_gettime = linked.functions.contains("tl_system_clock");
  return result;
}

}  // namespace

std::uint32_t scratch_size(const plan::Program& program) {
  return static_scratch_size(program) + plan::kScratchGuard + plan::dynamic_scratch_size(program) +
         register_home_size(program);
}

namespace {

// Bodies whose registers took too much of the stack are compiled again, with their registers in
// scratch.
Result<ObjectCode> compile_with(Effort effort, const plan::Program& program,
                                const wire::Layout& layout, std::span<const BodyRequest> bodies) {
  std::vector<RegisterHome> homes(bodies.size(), RegisterHome::kMachine);
  TL_TRY_ASSIGN(Attempt first, attempt(program, layout, bodies, homes, effort));
  if (first.code.max_stack <= kUsualBodyStack) return std::move(first.code);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    if (first.stacks[i] > kUsualBodyStack) homes[i] = RegisterHome::kScratch;
  }
  if (scratch_size(program) > layout.scratch_size) {
    if (first.code.max_stack <= kMaxBodyStack) return std::move(first.code);
    return Error(ErrorCode::kUnsupported,
                 "a clause needs more of the target's stack than a probe may use");
  }
  TL_TRY_ASSIGN(Attempt second, attempt(program, layout, bodies, homes, effort));
  if (second.code.max_stack > kMaxBodyStack) {
    return Error(ErrorCode::kUnsupported,
                 "a clause needs " + std::to_string(second.code.max_stack) +
                     " bytes of the target's stack, of which a probe may use " +
                     std::to_string(kMaxBodyStack));
  }
  return std::move(second.code);
}

}  // namespace

Result<ObjectCode> compile(const plan::Program& program, const wire::Layout& layout,
                           std::span<const BodyRequest> bodies, Effort effort) {
  TL_TRY(validate(program, layout, bodies));
  if (bodies.empty()) return ObjectCode{};
  std::size_t clauses = 0;
  for (const BodyRequest& body : bodies) clauses += body.clauses.size();
  if (effort == Effort::kByCount) effort = clauses > kManyClauses ? Effort::kQuick : Effort::kFull;
  if (effort == Effort::kQuick) {
    auto quick = compile_with(Effort::kQuick, program, layout, bodies);
    // Code that is optimised needs less of the stack.
    if (quick || quick.error().code() != ErrorCode::kUnsupported) return quick;
  }
  return compile_with(Effort::kFull, program, layout, bodies);
}

}  // namespace trapline::codegen
