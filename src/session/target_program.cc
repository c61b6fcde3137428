#include "session/target_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "probes/rendezvous.h"
#include "wire/layout.h"

namespace trapline::session {

namespace {

// A breakpoint binds the process to its tracer, so a pattern does not lay any unasked.
probes::Traps traps_for(bool by_name, Engine engine) {
  switch (engine) {
    case Engine::kNoTraps:
      return probes::Traps::kNo;
    case Engine::kInline:
      return probes::Traps::kOffered;
    case Engine::kTrap:
    case Engine::kOutside:
      return probes::Traps::kAlways;
    case Engine::kAuto:
      break;
  }
  return by_name ? probes::Traps::kWhereNeeded : probes::Traps::kOffered;
}

// Layouts of about the same size are made equal, so that they can share code.
constexpr std::size_t kStringsGrain = std::size_t{256} << 10;

const PidPoint& pid_point(const EnabledProbe& probe) { return std::get<PidPoint>(probe.what); }

codegen::SiteKind site_kind(probes::PointKind kind) {
  return kind == probes::PointKind::kReturn ? codegen::SiteKind::kReturn
                                            : codegen::SiteKind::kEntry;
}

bool needs_chunks(const plan::Program& program) {
  const auto in_table = [](const plan::Aggregation& a) { return !a.direct; };
  const auto has_record = [](const plan::Clause& c) { return c.has_record; };
  return std::ranges::any_of(program.aggregations, in_table) ||
         std::ranges::any_of(program.clauses, has_record);
}

Result<wire::Layout> layout_of(const plan::Program& program, const plan::Options& options,
                               std::size_t strings_size, const ArenaWishes& wishes) {
  wire::LayoutRequest request;
  request.strings_size = strings_size;
  if (wishes.spare_strings != 0)
    request.strings_size = wire::align_up(strings_size + wishes.spare_strings, kStringsGrain);
  request.globals_size = program.globals_size;
  request.direct_size = program.direct_size;
  request.self_size = program.self_size;
  request.scratch_size = codegen::scratch_size(program);
  request.threads = wishes.threads;
  request.mute_offset = wishes.mute_offset;
  const long cpus = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  if (needs_chunks(program))
    request.buffer_bytes = static_cast<std::uint64_t>(options.number("bufsize") * cpus);
  const wire::Layout layout = wire::make_layout(request);
  if (layout.size == 0)
    return Error(ErrorCode::kUnsupported, "the program's variables and buffers are too large");
  return layout;
}

bool is_wanted(probes::RendezvousKind kind, const RendezvousWishes& wishes) {
  switch (kind) {
    case probes::RendezvousKind::kExec:
      return wishes.execs;
    case probes::RendezvousKind::kLoad:
      return wishes.loads;
    default:
      return wishes.forks;
  }
}

// A function of a rendezvous, at places that no other has.
struct RendezvousPlace {
  probes::RendezvousKind kind{};
  probes::MatchedFunction function;
};

std::deque<RendezvousPlace> rendezvous_places(probes::ModuleCache& modules,
                                              const RendezvousWishes& wishes) {
  std::deque<RendezvousPlace> places;
  std::set<std::pair<std::size_t, std::uint64_t>> known;
  std::set<std::string_view> names;
  for (const probes::RendezvousFunction& wanted : probes::rendezvous_functions()) {
    if (!is_wanted(wanted.kind, wishes) || names.contains(wanted.instead)) continue;
    auto found = probes::match_functions(modules, {"", std::string(wanted.name), "entry"});
    if (!found) continue;
    for (probes::MatchedFunction& function : found->functions) {
      names.insert(wanted.name);
      std::erase_if(function.places, [&](const symbols::Symbol& place) {
        return !known.emplace(function.module, place.address.value()).second;
      });
      if (!function.places.empty()) places.push_back({wanted.kind, std::move(function)});
    }
  }
  return places;
}

// What the probes' bodies read of them. The names are counted from the start of the strings.
std::vector<probes::ProbeBinding> name_probes(const ProgramContext& context,
                                              std::span<const std::uint32_t> which,
                                              StringTable& strings) {
  std::vector<probes::ProbeBinding> bindings;
  for (const std::uint32_t i : which) {
    wire::ProbeSite& site = bindings.emplace_back().site;
    const plan::ProbeName& name = context.probes[i].name;
    site.probe = i;
    site.id = name.id;
    const auto& usdt = pid_point(context.probes[i]).function->usdt;
    site.provider = strings.add_provider(usdt ? usdt->provider : "pid");
    site.module = strings.add(name.module);
    site.function = strings.add(name.function);
    site.name = strings.add(name.name);
  }
  return bindings;
}

Result<std::shared_ptr<const ProbeBatch>> make_batch(const ProgramContext& context,
                                                     const wire::Layout& layout, PlannedSites sites,
                                                     std::vector<probes::ProbeBinding> bindings,
                                                     std::set<BodyKey> wanted) {
  auto batch = std::make_shared<ProbeBatch>();
  if (sites.is_outside()) {  // nobody runs a body
    batch->sites = std::move(sites);
    return std::shared_ptr<const ProbeBatch>(std::move(batch));
  }
  for (const std::uint32_t i : sites.probes) wanted.insert(body_key(context.probes[i]));
  TL_TRY_ASSIGN(batch->object,
                context.bodies.get(context.program, layout, wanted,
                                   sites.rendezvous.empty() ? Stubs::kLeaveOut : Stubs::kInclude));
  const auto strings = static_cast<std::uint32_t>(layout.strings);
  for (std::size_t n = 0; n < bindings.size(); ++n) {
    bindings[n].body = batch->object->entries.at(body_key(context.probes[sites.probes[n]]));
    wire::ProbeSite& site = bindings[n].site;
    site.provider += strings;
    site.module += strings;
    site.function += strings;
    site.name += strings;
  }
  for (const probes::RendezvousKind kind : sites.rendezvous) {
    bindings.emplace_back().body = (*batch->object->stubs)[static_cast<std::size_t>(kind)];
  }
  batch->sites = std::move(sites);
  batch->bindings = std::move(bindings);
  return std::shared_ptr<const ProbeBatch>(std::move(batch));
}

// rep movs and the like.
bool is_repeated(std::span<const std::byte> bytes) {
  bool repeats = false;
  for (const std::byte byte : bytes) {
    const auto value = static_cast<unsigned>(byte);
    const bool repeat = value == 0xf2 || value == 0xf3;
    const bool rex = value >= 0x40 && value <= 0x4f;
    const bool other = value == 0x66 || value == 0x67 || value == 0x64 || value == 0x65 ||
                       value == 0x26 || value == 0x2e || value == 0x36 || value == 0x3e;
    repeats = repeats || repeat;
    if (repeat || rex || other) continue;
    return repeats && ((value >= 0xa4 && value <= 0xa7) || (value >= 0xaa && value <= 0xaf));
  }
  return false;
}

struct WhyNot {
  const char* reason = nullptr;  // nullptr: nothing is in the way
  const char* detail = nullptr;
};

// What the engine outside cannot do: a step of a repeated instruction is one turn of many.
WhyNot not_outside(const isa::SitePlan& site, const probes::SitePlans& plans) {
  if (is_repeated(site.original))
    return {"a repeated string instruction",
            "the engine outside would have to step each of its turns"};
  const auto in_vector = [](const isa::Operand& o) { return o.kind == isa::OperandKind::kVector; };
  const bool vector = std::ranges::any_of(site.points, [&](const isa::PlannedPoint& point) {
    const auto& usdt = plans.uses[point.tag].usdt;
    return usdt && std::ranges::any_of(usdt->operands, in_vector);
  });
  if (vector) return {"an argument in a vector register", "which the engine outside does not read"};
  return {};
}

void refuse_outside(const probes::ModuleCache& modules, probes::SitePlans& plans) {
  for (probes::ModuleSites& module : plans.modules) {
    const LoadBias bias = modules.module(module.module).bias;
    std::erase_if(module.sites, [&](const isa::SitePlan& site) {
      const WhyNot why = not_outside(site, plans);
      if (why.reason == nullptr) return false;
      for (const isa::PlannedPoint& point : site.points) {
        plans.refused.push_back({plans.uses[point.tag].probe, module.module,
                                 bias.to_remote(site.site), why.reason, why.detail});
      }
      return true;
    });
  }
}

void put_text(unsigned char* to, std::size_t size, std::string_view text) {
  std::memset(to, 0, size);
  std::memcpy(to, text.data(), std::min(text.size(), size - 1));
}

}  // namespace

StringTable::StringTable(const plan::Program& program) {
  for (const std::string& text : program.strings)
    bytes_.insert(bytes_.end(), text.c_str(), text.c_str() + text.size() + 1);
  execname_ = static_cast<std::uint32_t>(bytes_.size());
  bytes_.resize(bytes_.size() + kExecnameSize);
}

std::uint32_t StringTable::add_provider(std::string_view name) {
  const auto known = providers_.find(name);
  if (known != providers_.end()) return known->second;
  const auto offset = static_cast<std::uint32_t>(bytes_.size());
  bytes_.insert(bytes_.end(), name.begin(), name.end());
  bytes_.resize(bytes_.size() + kNumberSize);
  providers_.emplace(name, offset);
  return offset;
}

std::vector<char> StringTable::bytes_of(Pid pid) const {
  std::vector<char> bytes = bytes_;
  for (const auto& [name, offset] : providers_) {
    const std::string number = std::to_string(pid.value);
    std::memcpy(bytes.data() + offset + name.size(), number.data(),
                std::min<std::size_t>(number.size(), kNumberSize - 1));
  }
  return bytes;
}

std::uint32_t StringTable::add(std::string_view text) {
  const auto known = known_.find(text);
  if (known != known_.end()) return known->second;
  const auto offset = static_cast<std::uint32_t>(bytes_.size());
  bytes_.insert(bytes_.end(), text.begin(), text.end());
  bytes_.push_back('\0');
  known_.emplace(text, offset);
  return offset;
}

BodyKey body_key(const EnabledProbe& probe) {
  return {site_kind(pid_point(probe).point.kind), probe.clauses};
}

PlannedSites plan_sites(std::span<const PlacedProbe> which, probes::ModuleCache& modules,
                        RendezvousWishes rendezvous, probes::ShadowStack shadow_stack,
                        Engine engine) {
  PlannedSites sites;
  sites.engine = engine;
  std::vector<probes::WantedProbe> wanted;
  std::uint32_t number = 0;
  for (const PlacedProbe& placed : which) {
    sites.probes.push_back(placed.probe);
    wanted.push_back(
        {number++, placed.function.get(), placed.point, traps_for(placed.by_name, engine)});
  }
  const std::deque<RendezvousPlace> places = rendezvous_places(modules, rendezvous);
  for (const RendezvousPlace& place : places) {
    sites.rendezvous.push_back(place.kind);
    wanted.push_back({number++, &place.function, {probes::PointKind::kEntry}});
  }
  sites.plans = probes::plan_probes(modules, wanted, shadow_stack);
  for (const RendezvousPlace& place : places) {
    sites.told.execs |= place.kind == probes::RendezvousKind::kExec;
    sites.told.loads |= place.kind == probes::RendezvousKind::kLoad;
    sites.told.forks |= place.kind >= probes::RendezvousKind::kFork;
  }
  for (const probes::RefusedPlace& refused : sites.plans.refused) {
    if (sites.is_probe(refused.probe)) continue;
    const probes::RendezvousKind kind = sites.rendezvous[refused.probe - sites.probes.size()];
    if (kind == probes::RendezvousKind::kExec) sites.told.execs = false;
    if (kind == probes::RendezvousKind::kLoad) sites.told.loads = false;
    if (kind >= probes::RendezvousKind::kFork) sites.told.forks = false;
  }
  std::erase_if(sites.plans.refused,
                [&](const probes::RefusedPlace& place) { return !sites.is_probe(place.probe); });
  if (sites.is_outside()) refuse_outside(modules, sites.plans);
  return sites;
}

Result<TargetProgram> build_target_program(const ProgramContext& context, PlannedSites sites,
                                           const std::set<BodyKey>& later,
                                           const ArenaWishes& wishes) {
  TargetProgram built{{}, StringTable(context.program), {}};
  std::vector<probes::ProbeBinding> bindings = name_probes(context, sites.probes, built.strings);
  TL_TRY_ASSIGN(built.layout,
                layout_of(context.program, context.options, built.strings.bytes().size(), wishes));
  TL_TRY_ASSIGN(auto batch,
                make_batch(context, built.layout, std::move(sites), std::move(bindings), later));
  built.batches.push_back(std::move(batch));
  return built;
}

Result<std::shared_ptr<const ProbeBatch>> add_batch(const ProgramContext& context,
                                                    TargetProgram& target, PlannedSites sites) {
  StringTable strings = target.strings;
  std::vector<probes::ProbeBinding> bindings = name_probes(context, sites.probes, strings);
  if (strings.bytes().size() > target.layout.strings_size) {
    return Error(ErrorCode::kUnsupported,
                 "the room that was set aside for the names of probes in modules "
                 "that are loaded later is used up");
  }
  TL_TRY_ASSIGN(auto batch,
                make_batch(context, target.layout, std::move(sites), std::move(bindings), {}));
  target.strings = std::move(strings);
  target.batches.push_back(batch);
  return batch;
}

std::vector<probes::ProbeBinding> bind(const ProbeBatch& batch, RemoteAddr arena,
                                       RemoteAddr alive) {
  std::vector<probes::ProbeBinding> bindings = batch.bindings;
  for (probes::ProbeBinding& binding : bindings) {
    binding.site.arena = arena.value();
    binding.site.alive = alive.value();
  }
  return bindings;
}

void fill_arena(const TargetProgram& target, std::span<std::byte> arena, Pid pid,
                std::string_view execname) {
  auto* bytes = reinterpret_cast<unsigned char*>(arena.data());
  wire::initialize(bytes, target.layout);
  fill_names(target, arena, pid);
  unsigned char* strings = bytes + target.layout.strings;
  put_text(strings + target.strings.execname(), StringTable::kExecnameSize, execname);
  auto* header = reinterpret_cast<wire::Header*>(bytes);
  header->execname = static_cast<std::uint32_t>(target.layout.strings) + target.strings.execname();
}

void fill_names(const TargetProgram& target, std::span<std::byte> arena, Pid pid) {
  const std::size_t own = target.strings.execname();
  const std::size_t rest = own + StringTable::kExecnameSize;
  const std::vector<char> all = target.strings.bytes_of(pid);
  std::byte* to = arena.data() + target.layout.strings;
  std::memcpy(to, all.data(), own);
  std::memcpy(to + rest, all.data() + rest, all.size() - rest);
}

}  // namespace trapline::session
