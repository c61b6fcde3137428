// The tree as text. Expressions are printed in prefix form, so that structure is plain without
// precedence.

#include "dlang/ast_print.h"

#include <fmt/format.h>

#include <utility>

namespace trapline::dlang {
namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (c == '\n') {
      result += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\{:03o}", byte);
    } else {
      result.push_back(c);
    }
  }
  return result + "\"";
}

std::string integer_text(const IntegerLiteral& e) {
  std::string text = e.negative ? "-" : "";
  text += e.decimal ? fmt::format("{}", e.value) : fmt::format("0x{:x}", e.value);
  if (e.unsigned_suffix) text += "u";
  text.append(e.long_suffixes, 'l');
  return text;
}

std::string identifier_text(const Identifier& e) {
  switch (e.scope) {
    case VariableScope::kSelf:
      return "self->" + e.name;
    case VariableScope::kThis:
      return "this->" + e.name;
    case VariableScope::kGlobal:
      break;
  }
  return e.symbol ? e.module + "`" + e.name : e.name;
}

std::string list_text(std::string_view head, const Expression& first,
                      const std::vector<ExpressionPtr>& rest) {
  std::string text = fmt::format("({} {}", head, to_text(first));
  for (const ExpressionPtr& e : rest) text += " " + to_text(*e);
  return text + ")";
}

std::string unary_text(const Unary& e) {
  const bool post = e.op == UnaryOperator::kPostIncrement || e.op == UnaryOperator::kPostDecrement;
  return fmt::format("({}{} {})", post ? "post" : "", spelling(e.op), to_text(*e.operand));
}

std::string parameter_text(const std::vector<Parameter>& parameters, bool variadic) {
  std::string text;
  for (const Parameter& parameter : parameters) {
    text += (text.empty() ? "" : ", ") + to_text(parameter.specifiers, parameter.declarator);
  }
  if (variadic) text += text.empty() ? "..." : ", ...";
  return text;
}

std::string part_text(const DeclaratorPart& part) {
  switch (part.kind) {
    case DeclaratorPartKind::kPointer: {
      std::string text;
      for (const SpecifierKind qualifier : part.qualifiers)
        text += std::string(spelling(qualifier)) + " ";
      return text + "pointer to ";
    }
    case DeclaratorPartKind::kArray:
      if (part.associative)
        return fmt::format("array [{}] of ", parameter_text(part.parameters, part.variadic));
      return part.size == nullptr ? "array of " : fmt::format("array {} of ", to_text(*part.size));
    case DeclaratorPartKind::kFunction:
      return fmt::format("function ({}) of ", parameter_text(part.parameters, part.variadic));
  }
  return {};
}

std::string members_text(const TypeSpecifier& type) {
  std::string text = " {";
  for (const MemberDeclaration& member : type.members) {
    for (const Declarator& declarator : member.declarators)
      text += " " + to_text(member.specifiers, declarator) + ";";
  }
  for (const Enumerator& enumerator : type.enumerators) {
    text += " " + enumerator.name;
    if (enumerator.value != nullptr) text += " = " + to_text(*enumerator.value);
    text += ";";
  }
  return text + " }";
}

class TreePrinter {
 public:
  void item(const Item& item) {
    switch (item.kind) {
      case ItemKind::kClause:
        return clause(item.as<Clause>());
      case ItemKind::kDeclaration:
        return declaration(item.as<Declaration>());
      case ItemKind::kInline:
        return inline_definition(item.as<InlineDefinition>());
      case ItemKind::kTranslator:
        return translator(item.as<TranslatorDefinition>());
      case ItemKind::kProvider:
        return provider(item.as<ProviderDefinition>());
      case ItemKind::kPragma:
        return pragma(item.as<Pragma>());
    }
  }
  std::string take() { return std::move(text_); }

 private:
  void line(int level, std::string_view text) {
    text_.append(static_cast<std::size_t>(level) * 2, ' ');
    text_.append(text);
    text_.push_back('\n');
  }
  void clause(const Clause& clause) {
    line(0, "clause");
    for (const ProbeDescription& probe : clause.probes) line(1, "probe " + to_text(probe));
    if (clause.predicate != nullptr) line(1, "predicate " + to_text(*clause.predicate));
    if (!clause.has_body) line(1, "no body");
    for (const ExpressionPtr& statement : clause.statements) line(1, to_text(*statement));
  }
  void declaration(const Declaration& declaration) {
    line(0, "declaration");
    if (declaration.declarators.empty()) line(1, to_text(declaration.specifiers));
    for (const Declarator& declarator : declaration.declarators) {
      line(1, to_text(declaration.specifiers, declarator));
    }
  }
  void inline_definition(const InlineDefinition& definition) {
    line(0, "inline");
    line(1, to_text(definition.specifiers, definition.declarator));
    line(1, to_text(*definition.value));
  }
  void translator(const TranslatorDefinition& definition) {
    line(0, fmt::format("translator {} < {} {} >", to_text(*definition.output),
                        to_text(*definition.input), definition.parameter));
    for (const TranslatorMember& member : definition.members) {
      line(1, fmt::format("{} = {}", member.name, to_text(*member.value)));
    }
  }
  void provider(const ProviderDefinition& definition) {
    line(0, "provider " + definition.name);
    for (const ProviderProbe& probe : definition.probes) {
      std::string text =
          fmt::format("probe {}({})", probe.name, parameter_text(probe.arguments, false));
      if (probe.has_translation)
        text += fmt::format(" : ({})", parameter_text(probe.translated, false));
      line(1, text);
    }
  }
  void pragma(const Pragma& pragma) {
    static constexpr std::string_view kNames[] = {"option", "attributes", "binding", "depends_on"};
    std::string text =
        fmt::format("pragma {} {}", kNames[static_cast<std::size_t>(pragma.pragma)], pragma.name);
    if (pragma.value) text += " = " + quoted(*pragma.value);
    for (const std::string& argument : pragma.arguments) text += " " + argument;
    line(0, text);
  }

  std::string text_;
};

}  // namespace

std::string to_text(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kInteger:
      return integer_text(expression.as<IntegerLiteral>());
    case ExpressionKind::kString:
      return quoted(expression.as<StringLiteral>().value);
    case ExpressionKind::kIdentifier:
      return identifier_text(expression.as<Identifier>());
    case ExpressionKind::kAggregation:
      return "@" + expression.as<AggregationReference>().name;
    case ExpressionKind::kIndex: {
      const auto& e = expression.as<Index>();
      return list_text("[]", *e.base, e.indices);
    }
    case ExpressionKind::kCall: {
      const auto& e = expression.as<Call>();
      return list_text("call", *e.callee, e.arguments);
    }
    case ExpressionKind::kMember: {
      const auto& e = expression.as<Member>();
      return fmt::format("({} {} {})", e.access == Access::kArrow ? "->" : ".", to_text(*e.base),
                         e.name);
    }
    case ExpressionKind::kUnary:
      return unary_text(expression.as<Unary>());
    case ExpressionKind::kBinary: {
      const auto& e = expression.as<Binary>();
      return fmt::format("({} {} {})", spelling(e.op), to_text(*e.left), to_text(*e.right));
    }
    case ExpressionKind::kAssign: {
      const auto& e = expression.as<Assign>();
      return fmt::format("({}= {} {})", e.op ? spelling(*e.op) : "", to_text(*e.target),
                         to_text(*e.value));
    }
    case ExpressionKind::kConditional: {
      const auto& e = expression.as<Conditional>();
      return fmt::format("(? {} {} {})", to_text(*e.condition), to_text(*e.if_true),
                         to_text(*e.if_false));
    }
    case ExpressionKind::kCast: {
      const auto& e = expression.as<Cast>();
      return fmt::format("(cast <{}> {})", to_text(*e.type), to_text(*e.operand));
    }
    case ExpressionKind::kSizeofType:
      return fmt::format("(sizeof <{}>)", to_text(*expression.as<SizeofType>().type));
    case ExpressionKind::kOffsetof: {
      const auto& e = expression.as<Offsetof>();
      return fmt::format("(offsetof <{}> {})", to_text(*e.type), e.member);
    }
    case ExpressionKind::kXlate: {
      const auto& e = expression.as<Xlate>();
      return fmt::format("(xlate <{}> {})", to_text(*e.type), to_text(*e.operand));
    }
  }
  return {};
}

std::string to_text(const Specifiers& specifiers) {
  std::string text;
  const auto add = [&text](std::string_view word) {
    text += (text.empty() ? "" : " ") + std::string(word);
  };
  for (const StorageClassSpecifier& storage : specifiers.storage) add(spelling(storage.storage));
  for (const TypeSpecifier& type : specifiers.types) {
    if (type.kind != SpecifierKind::kTypedefName) add(spelling(type.kind));
    if (!type.name.empty()) add(type.name);
    if (type.has_body) text += members_text(type);
  }
  return text;
}

std::string to_text(const Specifiers& specifiers, const Declarator& declarator) {
  std::string text = declarator.name.empty() ? "" : declarator.name + ": ";
  for (const DeclaratorPart& part : declarator.parts) text += part_text(part);
  text += to_text(specifiers);
  if (declarator.bit_width != nullptr) text += " : " + to_text(*declarator.bit_width);
  return text;
}

std::string to_text(const TypeName& type) { return to_text(type.specifiers, type.declarator); }

std::string to_text(const ProbeDescription& probe) {
  if (probe.id) return fmt::format("#{}", *probe.id);
  const std::string function = probe.quoted ? quoted(probe.function) : probe.function;
  return fmt::format("{}:{}:{}:{}", probe.provider, probe.module, function, probe.name);
}

std::string print_tree(const Program& program) {
  TreePrinter printer;
  for (const std::unique_ptr<Item>& item : program.items) printer.item(*item);
  return printer.take();
}

}  // namespace trapline::dlang
