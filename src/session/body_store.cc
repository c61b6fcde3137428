#include "session/body_store.h"

#include <algorithm>

#include "isa/x86_64/verify.h"

namespace trapline::session {

namespace {

bool serves(const BodyObject& object, const wire::Layout& layout, const std::set<BodyKey>& wanted,
            Stubs stubs) {
  if (object.layout != layout || (stubs == Stubs::kInclude && !object.stubs)) return false;
  return std::ranges::all_of(wanted,
                             [&](const BodyKey& key) { return object.entries.contains(key); });
}

// Appends a stub to the compiled bodies; its offset.
std::uint32_t append_stub(codegen::ObjectCode& object, probes::RendezvousKind kind) {
  const std::vector<std::byte> stub = probes::rendezvous_stub(kind);
  const std::size_t offset = (object.bytes.size() + codegen::kObjectAlignment - 1) /
                             codegen::kObjectAlignment * codegen::kObjectAlignment;
  object.bytes.resize(offset);
  object.bytes.insert(object.bytes.end(), stub.begin(), stub.end());
  return static_cast<std::uint32_t>(offset);
}

Result<> verify(const BodyObject& object, std::vector<isa::OffsetRange> code) {
  const codegen::ObjectCode& o = object.code;
  isa::VerifyRequest request;
  request.blob = o.bytes;
  const bool calls = o.calls_gettid || o.calls_process_vm_readv || o.calls_clock_gettime ||
                     o.calls_process_vm_writev || o.calls_kill || object.stubs;
  request.code = std::move(code);
  request.entries.assign(o.entries.begin(), o.entries.end());
  request.max_stack = codegen::kMaxBodyStack;
  request.system_calls = calls ? isa::SystemCalls::kAllowed : isa::SystemCalls::kForbidden;
  const auto report = isa::verify_code(request);
  if (!report) return report.error().within("a compiled body was refused by the verifier");
  return {};
}

}  // namespace

Result<std::shared_ptr<const BodyObject>> BodyStore::get(const plan::Program& program,
                                                         const wire::Layout& layout,
                                                         const std::set<BodyKey>& wanted,
                                                         Stubs stubs) {
  for (const std::shared_ptr<const BodyObject>& known : objects_) {
    if (serves(*known, layout, wanted, stubs)) return known;
  }
  std::vector<codegen::BodyRequest> requests;
  for (const auto& [kind, clauses] : wanted) requests.push_back({kind, clauses});
  auto made = std::make_shared<BodyObject>();
  made->layout = layout;
  TL_TRY_ASSIGN(made->code, codegen::compile(program, layout, requests));
  codegen::ObjectCode& code = made->code;
  std::size_t i = 0;
  for (const BodyKey& key : wanted) made->entries.emplace(key, code.entries[i++]);
  std::vector<isa::OffsetRange> ranges;
  if (code.code.size != 0) ranges.push_back({code.code.offset, code.code.offset + code.code.size});
  if (stubs == Stubs::kInclude) {
    made->stubs.emplace();
    for (std::size_t kind = 0; kind < probes::kRendezvousKinds; ++kind) {
      const std::uint32_t offset = append_stub(code, static_cast<probes::RendezvousKind>(kind));
      (*made->stubs)[kind] = offset;
      code.entries.push_back(offset);
      ranges.push_back({offset, code.bytes.size()});
    }
  }
  TL_TRY(verify(*made, std::move(ranges)));
  objects_.push_back(made);
  return std::shared_ptr<const BodyObject>(std::move(made));
}

}  // namespace trapline::session
