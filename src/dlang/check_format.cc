// The checker's part for formats: printf(), printa() and their arguments.

#include "dlang/checker.h"

namespace trapline::dlang {
namespace {

// What DTrace uses inside for "standard output again"; so no file can be called that.
constexpr std::string_view kFreopenRestore = ".";

std::string argument_name(const Node& call, std::size_t index) {
  return "argument #" + std::to_string(index) + " of " + std::string(call.function->name) + "()";
}

}  // namespace

bool Checker::verify_printf(Node& node) {
  const Node& format = *node.operands.front();
  if (format.kind != NodeKind::kString) {
    report(
        "PRINTF_ARG_FMT", format.range,
        argument_name(node, 1) + " must be a string constant; this is of type " + name_of(format));
    return false;
  }
  if (node.function->id == FunctionId::kFreopen) {
    if (format.text == kFreopenRestore) {
      report("FREOPEN_INVALID", format.range, "freopen() cannot open \"" + format.text + "\"");
      return false;
    }
    if (format.text.empty()) return true;
  }
  std::vector<const Node*> arguments;
  for (std::size_t i = 1; i < node.operands.size(); ++i)
    arguments.push_back(node.operands[i].get());
  return verify_format(node, arguments, nullptr);
}

bool Checker::verify_printa(Node& node) {
  const bool has_format = node.operands.front()->kind == NodeKind::kString;
  const std::size_t first = has_format ? 1 : 0;
  if (node.operands.size() <= first) {
    report("PRINTA_PROTO", node.range, "printa() needs an aggregation after its format");
    return false;
  }
  for (std::size_t i = first; i < node.operands.size(); ++i) {
    const Node& argument = *node.operands[i];
    if (argument.kind != NodeKind::kAggregation) {
      report("PRINTA_AGGARG", argument.range,
             argument_name(node, i + 1) + " must be an aggregation; this is of type " +
                 name_of(argument));
      return false;
    }
    if (argument.symbol->aggregating == nullptr) {
      report("PRINTA_AGGBAD", argument.range,
             "there is no aggregation @" + argument.symbol->name + " before this");
      return false;
    }
    if (i != first && !verify_printa_keys(*node.operands[first], argument)) return false;
    if (!has_format) continue;
    // The keys stand in for the arguments of the format.
    std::vector<Node> keys(argument.symbol->keys->size());
    std::vector<const Node*> arguments;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      keys[k].kind = NodeKind::kVariable;
      keys[k].type = (*argument.symbol->keys)[k];
      keys[k].range = argument.range;
      arguments.push_back(&keys[k]);
    }
    if (!verify_format(node, arguments, argument.symbol)) return false;
  }
  return true;
}

bool Checker::verify_printa_keys(const Node& first, const Node& other) {
  const auto& a = *first.symbol->keys;
  const auto& b = *other.symbol->keys;
  if (a.size() != b.size()) {
    report("PRINTA_AGGKEY", other.range,
           "printa() can join aggregations with the same keys only: @" + first.symbol->name +
               " has " + std::to_string(a.size()) + ", @" + other.symbol->name + " has " +
               std::to_string(b.size()));
    return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    Node key;
    key.kind = NodeKind::kVariable;
    key.type = b[i];
    if (argument_fits(a[i], key)) continue;
    report("PRINTA_AGGPROTO", other.range,
           "key #" + std::to_string(i + 1) + " of @" + first.symbol->name + " is of type " +
               name_of(a[i]) + ", that of @" + other.symbol->name + " of type " + name_of(b[i]));
    return false;
  }
  return true;
}

// Checks the format in operand 0 against its arguments: those of printf(), or an aggregation's
// keys.
bool Checker::verify_format(Node& node, std::span<const Node* const> arguments,
                            const Symbol* aggregation) {
  const Node& text = *node.operands.front();
  const std::string function = std::string(node.function->name) + "()";
  if (text.text.empty()) {
    report("PRINTF_FMT_EMPTY", text.range, "the format of " + function + " is empty");
    return false;
  }
  auto parsed = parse_format(text.text);
  if (!parsed) {
    report("SYNTAX", text.range, parsed.error().text());
    return false;
  }
  std::size_t next = 0;
  for (const FormatPart& part : *parsed) {
    if (part.conversion == 0) continue;
    const std::string name = part.length + part.conversion;
    const std::string number = "conversion #" + std::to_string(part.number) + " (%" + name + ")";
    for (int i = 0; i < (part.dynamic_width ? 1 : 0) + (part.dynamic_precision ? 1 : 0); ++i) {
      if (next == arguments.size()) {
        report("PRINTF_DYN_PROTO", text.range,
               number + " of " + function + " needs an argument for its *");
        return false;
      }
      const Node& argument = *arguments[next++];
      if (types_.is_integer(argument.type)) continue;
      report("PRINTF_DYN_TYPE", argument.range,
             "the * of " + number + " needs an integer; this is of type " + name_of(argument));
      return false;
    }
    ctypes::TypeId type = ctypes::kVoid;
    diag::Range where = text.range;
    if (part.is_aggregation) {
      if (aggregation == nullptr) {
        report("PRINTF_AGG_CONV", text.range,
               "%@ prints an aggregation: it is for printa(), not for " + function);
        return false;
      }
      const bool counts = aggregation->aggregating->id == FunctionId::kCount;
      type = *types_.find_typedef(counts ? "uint64_t" : "int64_t");
    } else if (next == arguments.size()) {
      report("PRINTF_ARG_PROTO", text.range, number + " of " + function + " has no argument");
      return false;
    } else {
      type = arguments[next]->type;
      where = arguments[next]->range;
      ++next;
    }
    if (accepts(part, type, types_, settings_.has_target)) continue;
    const Conversion* conversion = find_conversion(name);
    report("PRINTF_ARG_TYPE", where,
           number + " of " + function + " is for " +
               (conversion != nullptr ? std::string(conversion->prototype) : std::string()) +
               "; this is of type " + name_of(type));
    return false;
  }
  if (aggregation == nullptr && next < arguments.size()) {
    report("PRINTF_ARG_EXTRA", arguments[next]->range,
           function + " has more arguments (" + std::to_string(arguments.size()) +
               ") than its format uses (" + std::to_string(next) + ")");
    return false;
  }
  node.format = std::make_shared<const std::vector<FormatPart>>(std::move(*parsed));
  return true;
}

}  // namespace trapline::dlang
