#include "serve/request.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace trapline::serve {

namespace {

using nlohmann::json;

// How deep arrays and objects are nested; what is in strings does not count.
int depth_of(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

// An integer that fits; JSON's own limits are wider.
std::optional<std::int64_t> integer_of(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return std::nullopt;
}

// For a system call, which would end it at a NUL.
std::optional<std::string> plain_text_of(const json& value) {
  const auto* text = value.get_ptr<const std::string*>();
  if (text == nullptr || text->find('\0') != std::string::npos) return std::nullopt;
  return *text;
}

// The members of one object, each asked for once. The first failure is kept; after it every answer
// is a default.
class Members {
 public:
  explicit Members(const json& object, std::string where = {})
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("must be an object");
  }

  const json* find(const char* name) {
    known_.emplace_back(name);
    if (!object_.is_object()) return nullptr;
    const auto at = object_.find(name);
    return at == object_.end() ? nullptr : &*at;
  }
  const json* need(const char* name) {
    const json* value = find(name);
    if (value == nullptr) fail_at(name, "is missing");
    return value;
  }

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t greatest) {
    const json* value = need(name);
    return value == nullptr ? least : integer_in(name, *value, least, greatest);
  }
  std::int64_t integer_in(const char* name, const json& value, std::int64_t least,
                          std::int64_t greatest) {
    const auto number = integer_of(value);
    if (!number || *number < least || *number > greatest) {
      fail_at(name, "must be an integer from " + std::to_string(least) + " to " +
                        std::to_string(greatest));
      return least;
    }
    return *number;
  }
  std::string text(const char* name) {
    const json* value = need(name);
    return value == nullptr ? std::string() : text_of(name, *value);
  }
  std::string text_of(const char* name, const json& value) {
    if (const auto* text = value.get_ptr<const std::string*>()) return *text;
    fail_at(name, "must be a string");
    return {};
  }
  bool flag(const char* name) {
    const json* value = find(name);
    if (value == nullptr) return false;
    if (const auto* flag = value->get_ptr<const bool*>()) return *flag;
    fail_at(name, "must be true or false");
    return false;
  }

  void fail(const std::string& what) {
    if (!failure_) failure_ = (where_.empty() ? "params" : where_) + ' ' + what;
  }
  void fail_at(const std::string& name, const std::string& what) {
    if (!failure_) failure_ = (where_.empty() ? "" : where_ + ".") + name + ' ' + what;
  }
  // Another object's failure counts as ours.
  void take(const Members& other) {
    if (!failure_) failure_ = other.failure_;
  }
  // After all members were asked for: those that nobody asked for are refused.
  std::optional<std::string> finish() {
    if (object_.is_object()) {
      for (const auto& [name, value] : object_.items()) {
        if (std::ranges::find(known_, name) == known_.end()) fail_at(name, "is not known");
      }
    }
    return failure_;
  }

 private:
  const json& object_;
  std::string where_;
  std::vector<std::string> known_;
  std::optional<std::string> failure_;
};

constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();

SessionId read_session(Members& members) { return members.integer("session", 1, kGreatest); }

TargetChoice read_target(Members& members) {
  const json* object = members.need("target");
  if (object == nullptr) return Self{};
  Members target(*object, "target");
  TargetChoice choice = Self{};
  const json* self = target.find("self");
  const json* pid = target.find("pid");
  const json* argv = target.find("argv");
  const json* command = target.find("command");
  const int given = (self != nullptr) + (pid != nullptr) + (argv != nullptr) + (command != nullptr);
  if (given != 1) {
    target.fail("must have one of self, pid, argv and command");
  } else if (self != nullptr) {
    if (*self != true) target.fail_at("self", "must be true");
  } else if (pid != nullptr) {
    choice = Pid{static_cast<pid_t>(
        target.integer_in("pid", *pid, 1, std::numeric_limits<std::int32_t>::max()))};
  } else if (argv != nullptr) {
    Command started;
    if (!argv->is_array() || argv->empty()) target.fail_at("argv", "must be an array of strings");
    for (const json& word : *argv) {
      const auto text = plain_text_of(word);
      if (!text) target.fail_at("argv", "must be an array of strings without NUL");
      started.argv.push_back(text.value_or(""));
    }
    choice = std::move(started);
  } else {
    const auto line = plain_text_of(*command);
    if (!line) target.fail_at("command", "must be a string without NUL");
    choice = Command{{}, line.value_or("")};
  }
  (void)target.finish();
  members.take(target);
  return choice;
}

Method read_open(Members& members) {
  Open open;
  open.target = read_target(members);
  if (const json* records = members.find("records")) {
    open.records = *records == "push";
    if (!open.records && *records != "none")
      members.fail_at("records", "must be \"none\" or \"push\"");
  }
  if (const json* offset = members.find("mute_offset")) {
    open.mute_offset = static_cast<std::int32_t>(
        members.integer_in("mute_offset", *offset, std::numeric_limits<std::int32_t>::min(), -4));
    if (open.mute_offset % 4 != 0) members.fail_at("mute_offset", "must be a multiple of 4");
    if (!std::holds_alternative<Self>(open.target))
      members.fail_at("mute_offset", "is for the target self only");
  }
  if (const json* stdio = members.find("stdio")) {
    std::array<int, 3> fds{};
    if (!stdio->is_array() || stdio->size() != 3) {
      members.fail_at("stdio", "must be an array of three descriptors");
    } else {
      for (std::size_t i = 0; i < 3; ++i) {
        fds[i] = static_cast<int>(members.integer_in("stdio", (*stdio)[i], 0, 1 << 20));
      }
    }
    if (!std::holds_alternative<Command>(open.target))
      members.fail_at("stdio", "is for commands only");
    open.stdio = fds;
  }
  return open;
}

std::optional<std::string> option_value(Members& members, const std::string& name,
                                        const json& value) {
  if (const auto* text = value.get_ptr<const std::string*>()) return *text;
  if (const auto* flag = value.get_ptr<const bool*>()) {
    return *flag ? std::nullopt : std::optional<std::string>("false");
  }
  const auto number = integer_of(value);
  if (!number) members.fail_at("options." + name, "must be a string, an integer, true or false");
  return std::to_string(number.value_or(0));
}

Method read_compile(Members& members) {
  Compile compile;
  compile.session = read_session(members);
  compile.text = members.text("text");
  if (const json* name = members.find("name")) compile.name = members.text_of("name", *name);
  if (const json* arguments = members.find("arguments")) {
    if (!arguments->is_array()) members.fail_at("arguments", "must be an array of strings");
    for (const json& argument : *arguments) {
      compile.arguments.push_back(members.text_of("arguments", argument));
    }
  }
  if (const json* options = members.find("options")) {
    if (!options->is_object()) {
      members.fail_at("options", "must be an object");
    } else {
      for (const auto& [name, value] : options->items()) {
        compile.options.emplace_back(name, option_value(members, name, value));
      }
    }
  }
  return compile;
}

Method read_initialize(Members& members) {
  Initialize initialize;
  initialize.protocol = members.integer("protocol", 0, kGreatest);
  if (const json* client = members.find("client"))
    initialize.client = members.text_of("client", *client);
  return initialize;
}

Method read_snapshot(Members& members) {
  return TakeSnapshot{read_session(members), members.flag("text")};
}

template <typename M>
Method read_plain(Members& members) {
  return M{read_session(members)};
}

struct Known {
  std::string_view name;
  Method (*read)(Members&);
};
constexpr Known kMethods[] = {
    {"initialize", read_initialize},
    {"open", read_open},
    {"compile", read_compile},
    {"start", read_plain<Start>},
    {"stop", read_plain<Stop>},
    {"snapshot", read_snapshot},
    {"clear", read_plain<Clear>},
    {"close", read_plain<Close>},
    {"shutdown", [](Members&) -> Method { return Shutdown{}; }},
};

}  // namespace

std::expected<Call, BadCall> read_call(std::string_view line) {
  const auto bad = [](std::string id, Kind kind, std::string text) {
    return std::unexpected(BadCall{std::move(id), {kind, std::move(text), {}}});
  };
  if (depth_of(line) > kMaxDepth) return bad("null", Kind::kParse, "nested too deeply");
  const json value = json::parse(line, nullptr, false);
  if (value.is_discarded()) return bad("null", Kind::kParse, "not a line of JSON");
  if (value.is_array()) return bad("null", Kind::kRequest, "batches are not spoken");
  if (!value.is_object()) return bad("null", Kind::kRequest, "a request is an object");

  std::string id;
  if (const auto at = value.find("id"); at != value.end()) {
    if (!at->is_string() && !at->is_number_integer() && !at->is_null())
      return bad("null", Kind::kRequest, "id must be a string or an integer");
    id = at->dump();
  }
  const auto version = value.find("jsonrpc");
  if (version == value.end() || *version != "2.0")
    return bad(id.empty() ? "null" : id, Kind::kRequest, "jsonrpc must be \"2.0\"");
  const auto method = value.find("method");
  if (method == value.end() || !method->is_string())
    return bad(id.empty() ? "null" : id, Kind::kRequest, "method must be a string");
  for (const auto& [name, unused] : value.items()) {
    if (name != "jsonrpc" && name != "id" && name != "method" && name != "params")
      return bad(id.empty() ? "null" : id, Kind::kRequest, name + " is not known");
  }
  const auto& name = *method->get_ptr<const std::string*>();
  const auto known = std::ranges::find(kMethods, name, &Known::name);
  if (known == std::end(kMethods)) return bad(id, Kind::kMethod, "no method " + name);

  static const json kNone = json::object();
  const auto params = value.find("params");
  Members members(params == value.end() ? kNone : *params);
  Method read = known->read(members);
  if (const auto failure = members.finish()) return bad(id, Kind::kParameters, *failure);
  return Call{std::move(id), std::move(read)};
}

}  // namespace trapline::serve
