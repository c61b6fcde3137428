#include "session/enabling.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include "probes/usdt_provider.h"
#include "symbols/glob.h"
#include "target/process.h"

namespace trapline::session {

namespace {

bool is_pid_provider(std::string_view provider) {
  return provider.starts_with("pid") && provider.size() > 3;
}

// Of a built-in probe that is named in full nothing else is meant.
bool may_be_usdt(const plan::ProbeDescription& description) {
  if (description.id != 0 || is_pid_provider(description.provider)) return false;
  const auto builtin = match_builtin(description);
  if (!builtin || builtin->empty()) return builtin.has_value();
  return description.name.empty() || !symbols::Glob(description.name).is_literal();
}

// The pattern that the description has for the statically defined providers of a process; nullopt:
// it is about others.
std::optional<std::string> usdt_pattern(const plan::ProbeDescription& description, Pid pid) {
  if (!may_be_usdt(description)) return std::nullopt;
  const std::string number = std::to_string(pid.value);
  std::string provider = description.provider;
  constexpr std::string_view kTarget = "$target";
  const std::string written = description.text.substr(0, description.text.find(':'));
  if (const std::size_t at = written.find(kTarget); at != std::string::npos && !provider.empty())
    provider = written.substr(0, at) + number + written.substr(at + kTarget.size());
  const symbols::Glob glob(provider);
  if (glob.is_literal() && !glob.literal().ends_with(number)) return std::nullopt;
  return provider;
}

class Enabler {
 public:
  Enabler(const plan::Program& program, std::span<const MatchTarget> targets,
          std::uint32_t first_id)
      : program_(program), targets_(targets), next_id_(first_id) {}

  Enabling run() {
    enabling_.matches_by_clause.resize(program_.clauses.size());
    for (std::uint32_t c = 0; c < program_.clauses.size(); ++c) {
      matched_.clear();
      for (const plan::ProbeDescription& description : program_.clauses[c].probes)
        match(c, description);
      enabling_.matches_by_clause[c] = static_cast<std::uint32_t>(matched_.size());
    }
    for (const std::string& note : notes_) enabling_.notes.push_back(note);
    return std::move(enabling_);
  }

 private:
  void match(std::uint32_t clause, const plan::ProbeDescription& description) {
    const std::size_t before = matched_.size();
    already_ = false;
    std::string why;
    bool unsupported = false;
    tag_ = "D_PDESC_ZERO";
    if (description.id != 0) {
      why = match_id(clause, description.id);
    } else if (is_pid_provider(description.provider)) {
      why = match_pid(clause, description, unsupported);
    } else {
      auto found = match_builtin(description);
      if (!found) {
        why = found.error().text();
        unsupported = found.error().code() == ErrorCode::kUnsupported;
      } else {
        for (BuiltinProbe& probe : *found) add_builtin(clause, std::move(probe));
        why = match_usdt(clause, description);
      }
    }
    if (matched_.size() == before && !already_) {
      enabling_.unmatched.push_back({clause, description, std::move(why), unsupported, tag_});
    }
  }

  // Only BEGIN, END and ERROR have an ID before anything is enabled.
  std::string match_id(std::uint32_t clause, std::uint32_t id) {
    plan::ProbeDescription all;
    all.provider = "dtrace";
    auto found = match_builtin(all);
    if (!found) return found.error().text();
    for (BuiltinProbe& probe : *found) {
      if (probe.name.id == id) add_builtin(clause, std::move(probe));
    }
    return fmt::format("no probe has ID {}", id);
  }

  std::string match_pid(std::uint32_t clause, const plan::ProbeDescription& description,
                        bool& unsupported) {
    const auto pid = pid_of_provider(description.provider);
    if (!pid) {
      const std::string number = description.provider.substr(3);
      const bool is_number = number.find_first_not_of("0123456789") == std::string::npos;
      if (is_number) tag_ = "D_PROC_BADPID";
      return fmt::format("{} is not a process ID", number);
    }
    std::string why;
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      if (!is_meant(description, targets_[t].pid)) continue;
      auto found = probes::match_functions(
          *targets_[t].modules,
          {description.module, description.function, description.name, description.quoted},
          targets_[t].which);
      if (!found) {
        why = found.error().text();
        unsupported = true;
        tag_ = found.error().code() == ErrorCode::kNotFound ? "D_PROC_OFF" : "D_PROC_NAME";
        continue;
      }
      for (const Error& problem : found->problems) notes_.insert(problem.text());
      for (const probes::MatchedModule& m : found->modules) add_module_note(t, m, description);
      for (probes::MatchedFunction& function : found->functions) {
        if (!function.note.empty())
          notes_.insert(fmt::format("{}: {}", function.name, function.note));
        const auto shared = std::make_shared<const probes::MatchedFunction>(std::move(function));
        for (const probes::ProbePoint& point : shared->points)
          add_pid(clause, t, shared, point, is_by_name(description));
      }
    }
    return why;
  }

  // Returns why nothing matches, if more is known than that there is nothing.
  std::string match_usdt(std::uint32_t clause, const plan::ProbeDescription& description) {
    std::string why;
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      const MatchTarget& target = targets_[t];
      const auto pattern = usdt_pattern(description, target.pid);
      if (!pattern) {
        const bool bare =
            may_be_usdt(description) &&
            probes::has_usdt_provider(*target.modules, description.provider, target.which);
        if (bare)
          why = fmt::format("the provider's name takes a process ID: {0}$target or {0}{1}",
                            description.provider, target.pid.value);
        continue;
      }
      auto found = probes::match_usdt(*target.modules,
                                      {*pattern, description.module, description.function,
                                       description.name, description.quoted},
                                      target.pid, target.which);
      for (const probes::MatchedModule& m : found.modules) add_module_note(t, m, description);
      const bool by_name = !description.name.empty() && is_by_name(description);
      for (probes::MatchedFunction& function : found.functions) {
        const auto shared = std::make_shared<const probes::MatchedFunction>(std::move(function));
        add_pid(clause, t, shared, shared->points.front(), by_name);
      }
    }
    return why;
  }

  static bool is_by_name(const plan::ProbeDescription& description) {
    return symbols::Glob(description.function).is_literal() &&
           symbols::Glob(description.name).is_literal();
  }

  void add_module_note(std::size_t target, const probes::MatchedModule& matched,
                       const plan::ProbeDescription& description) {
    const symbols::Module& module = targets_[target].modules->module(matched.module);
    notes_.insert(fmt::format("{} matched {} function{} of {}", full_name(description),
                              matched.functions, matched.functions == 1 ? "" : "s", module.name));
  }

  void add_builtin(std::uint32_t clause, BuiltinProbe probe) {
    const auto key =
        std::make_tuple(~std::size_t{0}, std::size_t{0}, probe.name.name, probe.name.provider);
    add(clause, key, [&] {
      EnabledProbe enabled;
      enabled.name = probe.name;
      enabled.what = std::move(probe);
      return enabled;
    });
  }

  void add_pid(std::uint32_t clause, std::size_t target,
               const std::shared_ptr<const probes::MatchedFunction>& function,
               const probes::ProbePoint& point, bool by_name) {
    const auto& usdt = function->usdt;
    const auto key =
        std::make_tuple(target, function->module, function->name,
                        usdt ? usdt->provider + ":" + usdt->name : probes::point_name(point));
    add(clause, key, [&] {
      EnabledProbe enabled;
      enabled.name = {
          0, fmt::format("{}{}", usdt ? usdt->provider : "pid", targets_[target].pid.value),
          targets_[target].modules->module(function->module).name, function->name,
          usdt ? usdt->name : probes::point_name(point)};
      enabled.what = PidPoint{target, function, point};
      return enabled;
    });
    auto& what = std::get<PidPoint>(enabling_.probes[index_.at(key)].what);
    what.by_name = what.by_name || by_name;
  }

  using Key = std::tuple<std::size_t, std::size_t, std::string, std::string>;

  template <typename Make>
  void add(std::uint32_t clause, const Key& key, Make make) {
    auto [place, fresh] = index_.try_emplace(key, enabling_.probes.size());
    if (fresh) {
      enabling_.probes.push_back(make());
      if (enabling_.probes.back().name.id == 0) enabling_.probes.back().name.id = next_id_++;
    }
    EnabledProbe& probe = enabling_.probes[place->second];
    already_ = true;
    matched_.insert(place->second);
    if (probe.clauses.empty() || probe.clauses.back() != clause) probe.clauses.push_back(clause);
  }

  const plan::Program& program_;
  std::span<const MatchTarget> targets_;
  std::uint32_t next_id_;
  Enabling enabling_;
  std::map<Key, std::size_t> index_;
  std::set<std::size_t> matched_;  // by the clause in work
  bool already_ = false;           // the description in work matched something
  std::string tag_;                // DTrace's name for what is wrong with it
  std::set<std::string> notes_;
};

}  // namespace

std::string unmatched_text(const Unmatched& unmatched) {
  if (unmatched.unsupported) return unmatched.why;
  return fmt::format("probe description {} does not match any probes{}{}",
                     full_name(unmatched.description), unmatched.why.empty() ? "" : ": ",
                     unmatched.why);
}

std::string full_name(const plan::ProbeDescription& d) {
  return fmt::format("{}:{}:{}:{}", d.provider, d.module, d.function, d.name);
}

std::string full_name(const plan::ProbeName& p) {
  return fmt::format("{}:{}:{}:{}", p.provider, p.module, p.function, p.name);
}

bool is_meant(const plan::ProbeDescription& description, Pid pid) {
  const auto named = pid_of_provider(description.provider);
  if (!named) return usdt_pattern(description, pid).has_value();
  return *named == pid.value || description.text.find("$target") != std::string::npos;
}

std::optional<pid_t> pid_of_usdt_provider(std::string_view provider) {
  const std::size_t last = provider.find_last_not_of("0123456789");
  if (last == std::string_view::npos || is_pid_provider(provider)) return std::nullopt;
  if (!symbols::Glob(provider).is_literal()) return std::nullopt;
  const std::string_view number = provider.substr(last + 1);
  pid_t pid = 0;
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), pid);
  if (failed != std::errc{} || end != number.data() + number.size() || pid <= 0)
    return std::nullopt;
  return target::read_stat(Pid{pid}) ? std::optional(pid) : std::nullopt;
}

Enabling enable(const plan::Program& program, std::span<const MatchTarget> targets,
                std::uint32_t first_id) {
  return Enabler(program, targets, first_id).run();
}

}  // namespace trapline::session
