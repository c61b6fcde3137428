// Hostile code: anything may be in the text of an ELF file. The input's first bytes choose where
// functions, pads and points lie; the rest is the code. Nothing may crash; what is planned must be
// encodable or refused.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "isa/x86_64/encode.h"
#include "isa/x86_64/verify.h"

namespace {

using namespace trapline;
using namespace trapline::isa;

constexpr std::uint64_t kBase = 0x401000;

void check_plan(const SitePlan& plan) {
  TL_CHECK(plan.window_size >= plan.code_size && plan.window_size >= plan.patch_size);
  TL_CHECK(plan.original.size() == plan.window_size);
  std::uint64_t at = plan.site.value();
  for (const Instruction& i : plan.displaced) {
    TL_CHECK(i.address == at);
    at = i.end();
  }
  TL_CHECK(at == plan.site.value() + plan.code_size);
}

void encode(const SitePlan& plan) {
  check_plan(plan);
  TrampolineRequest request{.address = RemoteAddr(kBase + 0x100000), .bias = {}, .plan = &plan};
  for (const PlannedPoint& p : plan.points) {
    request.points.push_back({.offset = p.offset,
                              .kind = p.kind,
                              .save = Save::kAll,
                              .body = RemoteAddr(0x7f0000000000),
                              .probe_site = RemoteAddr(0x7f0000001000)});
  }
  const auto trampoline = encode_trampoline(request);
  if (!trampoline) return;
  TL_CHECK(trampoline->bytes.size() <= trampoline_bound(plan, plan.points.size()));
  TL_CHECK(trampoline->pcs.size() == plan.displaced.size());
}

void verify(std::span<const std::byte> code) {
  const auto report = verify_code({.blob = code, .code = {{0, code.size()}}, .entries = {0}});
  TL_CHECK(!report || report->max_stack <= 256);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 8) return 0;
  const auto code = std::as_bytes(std::span(data, size)).subspan(8);
  verify(code);

  ModuleInput input;
  input.sections.push_back({LinkAddr(kBase), code});
  input.functions.push_back({LinkAddr(kBase + data[0]), LinkAddr(kBase + data[0] + data[1])});
  input.functions.push_back({LinkAddr(kBase + data[2]), LinkAddr(kBase + data[2])});
  input.frames.push_back({LinkAddr(kBase + data[3]), LinkAddr(kBase + data[3] + data[4])});
  if (data[5] != 0) input.landing_pads.push_back(LinkAddr(kBase + data[5]));
  input.model = (data[6] & 1) != 0 ? AddressModel::kFixed : AddressModel::kRelative;
  input.pointers = (data[6] & 2) != 0 ? CodePointers::kComplete : CodePointers::kUnknown;
  input.read_data = [code](LinkAddr at, std::span<std::byte> out) {
    const std::uint64_t offset = at.value() - kBase;
    if (offset > code.size() || out.size() > code.size() - offset) return false;
    std::memcpy(out.data(), code.data() + offset, out.size());
    return true;
  };
  const std::vector<CodeRange> functions = input.functions;
  const ModuleCode module(std::move(input));
  for (const CodeRange& range : functions) {
    const FunctionCode function = analyze_function(module, range);
    std::vector<PointRequest> points = exit_points(function);
    points.push_back(entry_point(function));
    for (std::uint8_t n = 0; n < data[7]; ++n) {
      points.push_back(
          {.at = range.begin + n, .kind = PointKind::kInstruction, .function = &function});
    }
    const SiteSet set = plan_sites(module, points);
    std::size_t answered = set.refused.size();
    for (const SitePlan& plan : set.sites) {
      answered += plan.points.size();
      encode(plan);
    }
    TL_CHECK(answered == points.size());
    for (const RefusedPoint& refused : set.refused) {
      const TrapPlan trap = plan_trap_site(module, std::span(&refused.point, 1));
      if (trap.possible) encode(trap.plan);
    }
  }
  return 0;
}
