// The machine code of probe bodies, made once: a process whose modules change, a second one, and a
// child that is followed use what there is.
//
// An object holds all bodies that a batch of probes needs, and where they are wanted the stubs of
// the rendezvous. It fits one layout of the arena.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codegen/codegen.h"
#include "plan/plan.h"
#include "probes/rendezvous.h"
#include "wire/arena.h"

namespace trapline::session {

// A kind of site and the clauses that fire there, in order.
using BodyKey = std::pair<codegen::SiteKind, std::vector<std::uint32_t>>;

enum class Stubs : std::uint8_t { kLeaveOut, kInclude };

struct BodyObject {
  wire::Layout layout{};
  codegen::ObjectCode code;
  std::map<BodyKey, std::uint32_t> entries;  // offsets
  std::optional<std::array<std::uint32_t, probes::kRendezvousKinds>> stubs;
};

class BodyStore {
 public:
  // An object with at least these bodies. Errors: kUnsupported (a body that cannot be compiled),
  // kInternal.
  Result<std::shared_ptr<const BodyObject>> get(const plan::Program& program,
                                                const wire::Layout& layout,
                                                const std::set<BodyKey>& wanted, Stubs stubs);

 private:
  std::vector<std::shared_ptr<const BodyObject>> objects_;
};

}  // namespace trapline::session
