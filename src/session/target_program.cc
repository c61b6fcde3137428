#include "session/target_program.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "isa/x86_64/verify.h"
#include "probes/rendezvous.h"
#include "wire/layout.h"

namespace trapline::session {

namespace {

const PidPoint* pid_point(const EnabledProbe& probe, std::size_t target) {
  const auto* point = std::get_if<PidPoint>(&probe.what);
  return point != nullptr && point->target == target ? point : nullptr;
}

codegen::SiteKind site_kind(probes::PointKind kind) {
  return kind == probes::PointKind::kReturn ? codegen::SiteKind::kReturn
                                            : codegen::SiteKind::kEntry;
}

// A breakpoint binds the process to its tracer, so a pattern does not lay any unasked.
probes::Traps traps_for(const PidPoint& point, Engine engine) {
  switch (engine) {
    case Engine::kNoTraps:
      return probes::Traps::kNo;
    case Engine::kInline:
      return probes::Traps::kOffered;
    case Engine::kTrap:
      return probes::Traps::kAlways;
    case Engine::kAuto:
      break;
  }
  return point.by_name ? probes::Traps::kWhereNeeded : probes::Traps::kOffered;
}

// One body for each distinct list of clauses of each kind of site.
class BodySet {
 public:
  std::size_t index_of(codegen::SiteKind kind, const std::vector<std::uint32_t>& clauses) {
    const auto [known, fresh] = index_.try_emplace({kind, clauses}, requests_.size());
    if (fresh) requests_.push_back({kind, clauses});
    return known->second;
  }
  std::span<const codegen::BodyRequest> requests() const { return requests_; }

 private:
  std::map<std::pair<codegen::SiteKind, std::vector<std::uint32_t>>, std::size_t> index_;
  std::vector<codegen::BodyRequest> requests_;
};

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

Result<> verify(const codegen::ObjectCode& object, std::vector<isa::OffsetRange> code) {
  isa::VerifyRequest request;
  request.blob = object.bytes;
  const bool calls = object.calls_gettid || object.calls_process_vm_readv ||
                     object.calls_clock_gettime || object.calls_process_vm_writev ||
                     object.calls_kill || code.size() > 1;
  request.code = std::move(code);
  request.entries.assign(object.entries.begin(), object.entries.end());
  request.max_stack = codegen::kMaxBodyStack;
  request.system_calls = calls ? isa::SystemCalls::kAllowed : isa::SystemCalls::kForbidden;
  const auto report = isa::verify_code(request);
  if (!report) return report.error().within("a compiled body was refused by the verifier");
  return {};
}

}  // namespace

StringTable::StringTable(const plan::Program& program) {
  for (const std::string& text : program.strings)
    bytes_.insert(bytes_.end(), text.c_str(), text.c_str() + text.size() + 1);
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

namespace {

// The places of the functions that execute another program, each once, whatever it is called.
std::deque<probes::MatchedFunction> rendezvous_functions(probes::ModuleCache& modules) {
  std::deque<probes::MatchedFunction> functions;
  std::set<std::pair<std::size_t, std::uint64_t>> known;
  for (const std::string_view name : probes::kRendezvousFunctions) {
    auto found = probes::match_functions(modules, {"", std::string(name), "entry"});
    if (!found) continue;
    for (probes::MatchedFunction& function : found->functions) {
      std::erase_if(function.places, [&](const symbols::Symbol& place) {
        return !known.emplace(function.module, place.address.value()).second;
      });
      if (!function.places.empty()) functions.push_back(std::move(function));
    }
  }
  return functions;
}

// Appends the stub to the compiled bodies; its offset.
std::uint32_t append_rendezvous(codegen::ObjectCode& object, std::vector<isa::OffsetRange>& code) {
  const std::vector<std::byte> stub = probes::rendezvous_stub();
  const std::size_t offset = (object.bytes.size() + codegen::kObjectAlignment - 1) /
                             codegen::kObjectAlignment * codegen::kObjectAlignment;
  object.bytes.resize(offset);
  object.bytes.insert(object.bytes.end(), stub.begin(), stub.end());
  code.push_back({offset, object.bytes.size()});
  return static_cast<std::uint32_t>(offset);
}

}  // namespace

SitesOfTarget plan_sites(std::span<const EnabledProbe> probes, std::size_t target,
                         probes::ModuleCache& modules, Rendezvous rendezvous,
                         probes::ShadowStack shadow_stack, Engine engine) {
  SitesOfTarget sites;
  sites.rendezvous_probe = static_cast<std::uint32_t>(probes.size());
  std::vector<probes::WantedProbe> wanted;
  for (std::uint32_t i = 0; i < probes.size(); ++i) {
    if (const PidPoint* point = pid_point(probes[i], target))
      wanted.push_back({i, point->function.get(), point->point, traps_for(*point, engine)});
  }
  if (!wanted.empty() && rendezvous == Rendezvous::kInclude) {
    sites.rendezvous = rendezvous_functions(modules);
    for (const probes::MatchedFunction& function : sites.rendezvous) {
      wanted.push_back({sites.rendezvous_probe, &function, {probes::PointKind::kEntry}});
    }
  }
  sites.plans = probes::plan_probes(modules, wanted, shadow_stack);
  const std::size_t refused = std::erase_if(
      sites.plans.refused,
      [&](const probes::RefusedPlace& place) { return place.probe == sites.rendezvous_probe; });
  sites.execs_told = refused == 0 && !sites.rendezvous.empty();
  return sites;
}

Result<TargetProgram> build_target_program(const plan::Program& program,
                                           const plan::Options& options,
                                           std::span<const EnabledProbe> probes, std::size_t target,
                                           SitesOfTarget sites, const ArenaWishes& wishes,
                                           std::string_view execname) {
  TargetProgram built{{}, std::move(sites), {}, {}, {}, StringTable(program), 0};
  built.bindings.resize(std::size_t{built.sites.rendezvous_probe} + 1);
  BodySet bodies;
  std::vector<std::size_t> body_of(probes.size());
  for (std::uint32_t i = 0; i < built.sites.rendezvous_probe; ++i) {
    const PidPoint* point = pid_point(probes[i], target);
    if (point == nullptr) continue;
    built.probes.push_back(i);
    body_of[i] = bodies.index_of(site_kind(point->point.kind), probes[i].clauses);
    wire::ProbeSite& site = built.bindings[i].site;
    const plan::ProbeName& name = probes[i].name;
    site.probe = i;
    site.id = name.id;
    site.provider = built.strings.add(name.provider);
    site.module = built.strings.add(name.module);
    site.function = built.strings.add(name.function);
    site.name = built.strings.add(name.name);
  }
  built.execname = built.strings.add(execname);
  TL_TRY_ASSIGN(built.layout, layout_of(program, options, built.strings.bytes().size(), wishes));
  TL_TRY_ASSIGN(built.object, codegen::compile(program, built.layout, bodies.requests()));
  const auto strings = static_cast<std::uint32_t>(built.layout.strings);
  for (const std::uint32_t i : built.probes) {
    built.bindings[i].body = built.object.entries[body_of[i]];
    wire::ProbeSite& site = built.bindings[i].site;
    site.provider += strings;
    site.module += strings;
    site.function += strings;
    site.name += strings;
  }
  std::vector<isa::OffsetRange> code{
      {built.object.code.offset, built.object.code.offset + built.object.code.size}};
  if (!built.sites.rendezvous.empty()) {
    built.bindings[built.sites.rendezvous_probe].body = append_rendezvous(built.object, code);
    built.object.entries.push_back(built.bindings[built.sites.rendezvous_probe].body);
    built.probes.push_back(built.sites.rendezvous_probe);
  }
  TL_TRY(verify(built.object, std::move(code)));
  return built;
}

void bind_addresses(TargetProgram& target, RemoteAddr arena, RemoteAddr alive) {
  for (const std::uint32_t i : target.probes) {
    target.bindings[i].site.arena = arena.value();
    target.bindings[i].site.alive = alive.value();
  }
}

void fill_arena(const TargetProgram& target, std::span<std::byte> arena) {
  auto* bytes = reinterpret_cast<unsigned char*>(arena.data());
  wire::initialize(bytes, target.layout);
  std::memcpy(bytes + target.layout.strings, target.strings.bytes().data(),
              target.strings.bytes().size());
  auto* header = reinterpret_cast<wire::Header*>(bytes);
  header->execname = static_cast<std::uint32_t>(target.layout.strings) + target.execname;
}

}  // namespace trapline::session
