// The modules of a Tracee that come and go while it runs.

#include <algorithm>

#include "session/tracee.h"
#include "session/tracee_stop.h"

namespace trapline::session {

namespace {

// Batches whose modules have gone that stay mapped.
constexpr std::size_t kIdleBatches = 4;

}  // namespace

Result<ModuleChanges> Tracee::module_changes() {
  TL_TRY_ASSIGN(ModuleChanges changes, modules_->refresh());
  forget_sites(changes.gone);
  for (const std::size_t module : replaced_modules()) {
    if (std::ranges::find(changes.came, module) != changes.came.end()) continue;
    changes.came.push_back(module);
    forget_sites(std::span(&module, 1));
  }
  return changes;
}

// One that was unmapped and mapped again at its place looks as before, but for our jumps.
std::vector<std::size_t> Tracee::replaced_modules() const {
  std::vector<std::size_t> modules = modules_->cache().mapped();
  std::erase_if(modules, [&](std::size_t module) {
    return std::ranges::none_of(placed_, [&](const Placed& placed) {
      return placed.installation->was_replaced(module, *memory_);
    });
  });
  return modules;
}

void Tracee::forget_sites(std::span<const std::size_t> modules) {
  for (const std::size_t module : modules) {
    for (const Placed& placed : placed_) placed.installation->forget_module(module);
  }
  if (server_ && !modules.empty()) server_->run([&] { server_->set_traps(traps()); });
}

Result<> Tracee::forget_gone_modules() {
  TL_TRY_ASSIGN(const std::vector<std::size_t> gone, modules_->forget_gone());
  forget_sites(gone);
  forget_sites(replaced_modules());
  return {};
}

Result<std::vector<const ProbeBatch*>> Tracee::add(std::shared_ptr<const ProbeBatch> batch) {
  const bool was_attached = attachment() != nullptr;
  std::vector<const ProbeBatch*> released;
  const auto put = [&]() -> Result<> {
    place(batch);
    TL_TRY(while_stopped("map memory", [&](target::StoppedProcess& process) -> Result<> {
      TL_TRY_ASSIGN(released, release_idle(process));
      if (outside_) return {};
      TL_TRY_ASSIGN(target::RemoteCalls calls, target::RemoteCalls::begin(process));
      TL_TRY(placed_.back().installation->reserve(calls, owner()));
      return calls.end();
    }));
    TL_TRY(prepare(placed_.back()));
    return arm();
  };
  const Result<> done = put();
  if (!was_attached && !server_) (void)let_go();
  if (!done) return done.error();
  return released;
}

Result<> Tracee::arm_again(std::span<const std::size_t> modules) {
  const bool was_attached = attachment() != nullptr;
  for (const Placed& placed : placed_) {
    for (const std::size_t module : modules) placed.installation->expect_module(module);
  }
  const Result<> done = arm();
  if (!was_attached && !server_) (void)let_go();
  return done;
}

// Of the batches whose modules have gone the last few stay, as they may come again.
Result<std::vector<const ProbeBatch*>> Tracee::release_idle(target::StoppedProcess& process) {
  std::vector<const ProbeBatch*> released;
  auto idle = static_cast<std::size_t>(std::ranges::count_if(
      placed_, [](const Placed& placed) { return placed.installation->is_idle(); }));
  for (std::size_t i = 0; i < placed_.size() && idle > kIdleBatches; ++i) {
    probes::Installation& installation = *placed_[i].installation;
    if (!installation.is_idle()) continue;
    TL_TRY_ASSIGN(const bool unused, installation.release(process));
    if (!unused) continue;
    for (const probes::ModuleSites& module : placed_[i].batch->sites.plans.modules)
      modules_->cache().retire(module.module);
    released.push_back(placed_[i].batch.get());
    placed_.erase(placed_.begin() + static_cast<std::ptrdiff_t>(i--));
    --idle;
  }
  return released;
}

}  // namespace trapline::session
