#include "session/enabling.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "symbols/glob.h"

namespace trapline::session {

namespace {

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
    } else if (description.provider.starts_with("pid") && description.provider.size() > 3) {
      why = match_pid(clause, description, unsupported);
    } else {
      auto found = match_builtin(description);
      if (!found) {
        why = found.error().text();
        unsupported = found.error().code() == ErrorCode::kUnsupported;
      } else {
        for (BuiltinProbe& probe : *found) add_builtin(clause, std::move(probe));
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
    const auto key =
        std::make_tuple(target, function->module, function->name, probes::point_name(point));
    add(clause, key, [&] {
      EnabledProbe enabled;
      enabled.name = {0, fmt::format("pid{}", targets_[target].pid.value),
                      targets_[target].modules->module(function->module).name, function->name,
                      probes::point_name(point)};
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
  return named && (*named == pid.value || description.text.find("$target") != std::string::npos);
}

Enabling enable(const plan::Program& program, std::span<const MatchTarget> targets,
                std::uint32_t first_id) {
  return Enabler(program, targets, first_id).run();
}

}  // namespace trapline::session
