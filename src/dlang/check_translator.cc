// The checker's part for translators: their definitions, and xlate.
//
// A member of translated data is the translator's expression for it, with the operand of xlate in
// place of the translator's parameter: it becomes an inline with one parameter, which is expanded
// where it is used. Translated data as a whole is no object; only its members can be used.

#include <algorithm>

#include "dlang/checker.h"

namespace trapline::dlang {

using ctypes::TypeId;
using ctypes::TypeKind;

namespace {

bool is_structure(const ctypes::TypeTable& types, TypeId type) {
  const TypeKind kind = types.kind(type);
  return kind == TypeKind::kStruct || kind == TypeKind::kUnion;
}

}  // namespace

void Checker::check_translator(const TranslatorDefinition& definition) {
  const auto output = type_name(*definition.output);
  const auto input = type_name(*definition.input);
  if (!output || !input) return;
  const diag::Range where = definition.output->range;
  if (!is_structure(types_, *output)) {
    report("XLATE_SOU", where,
           "what a translator makes must be a structure or union, not " + name_of(*output));
    return;
  }
  if (!types_.get(types_.resolve(*output)).is_complete) {
    report("XLATE_SOU", where, "the members of " + name_of(*output) + " are not known");
    return;
  }
  for (const Translator& translator : translators_) {
    if (!types_.compatible(translator.output, *output) ||
        !types_.compatible(translator.input, *input))
      continue;
    report(
        "XLATE_REDECL", definition.range,
        "there is a translator from " + name_of(*input) + " to " + name_of(*output) + " already");
    return;
  }
  Translator translator{*output, *input, {}};
  symbols_.emplace_back();
  Symbol& parameter = symbols_.back();
  parameter.kind = SymbolKind::kParameter;
  parameter.name = definition.parameter;
  parameter.declared = true;
  parameter.type = *input;
  parameters_[parameter.name] = &parameter;
  for (const TranslatorMember& member : definition.members)
    check_translated(translator, member, parameter);
  parameters_.clear();
  translators_.push_back(std::move(translator));
}

void Checker::check_translated(Translator& translator, const TranslatorMember& member,
                               Symbol& parameter) {
  const auto found = types_.find_member(translator.output, member.name);
  if (!found) {
    report("XLATE_MEMB", member.name_range,
           name_of(translator.output) + " has no member " + member.name);
    return;
  }
  NodePtr value = check_expression(*member.value);
  if (value == nullptr) return;
  if (!argument_fits(found->type, *value)) {
    report("XLATE_INCOMPAT", member.value->range,
           "member " + member.name + " is of type " + name_of(found->type) +
               ", its value of type " + name_of(*value));
    return;
  }
  symbols_.emplace_back();
  Symbol& symbol = symbols_.back();
  symbol.kind = SymbolKind::kArrayInline;
  symbol.name = member.name;
  symbol.first = member.name_range;
  symbol.declared = true;
  symbol.type = found->type;
  symbol.keys = {*parameter.type};
  symbol.parameters = {&parameter};
  symbol.value = std::move(value);
  translator.members[member.name] = &symbol;
}

NodePtr Checker::check_xlate(const Xlate& xlate) {
  const auto type = type_name(*xlate.type);
  NodePtr operand = check_expression(*xlate.operand);
  if (!type || operand == nullptr) return nullptr;
  const bool is_pointer = types_.kind(*type) == TypeKind::kPointer;
  const TypeId output = is_pointer ? types_.pointed_to(*type) : *type;
  if (!is_structure(types_, output)) {
    return fail("XLATE_SOU", xlate.range,
                "xlate makes a structure or union, or a pointer to one, not " + name_of(*type));
  }
  // One for just this type, else one that could be assigned to.
  const auto makes = [&](const Translator& t) { return types_.compatible(t.output, output); };
  auto found = std::ranges::find_if(translators_, [&](const Translator& t) {
    return makes(t) && types_.compatible(t.input, operand->type);
  });
  if (found == translators_.end()) {
    found = std::ranges::find_if(translators_, [&](const Translator& t) {
      return makes(t) && argument_fits(t.input, *operand);
    });
  }
  if (found == translators_.end()) {
    return fail("XLATE_NONE", xlate.range,
                "there is no translator from " + name_of(*operand) + " to " + name_of(output));
  }
  NodePtr node = make(NodeKind::kXlate, ctypes::kDynamic, xlate.range);
  node->translated = *type;
  node->value = static_cast<std::uint64_t>(found - translators_.begin());
  node->operands.push_back(std::move(operand));
  return node;
}

NodePtr Checker::check_translated_member(const Member& member, const Node& xlate) {
  const Translator& translator = translators_[xlate.value];
  const bool is_pointer = types_.kind(xlate.translated) == TypeKind::kPointer;
  if (is_pointer != (member.access == Access::kArrow)) {
    return fail(is_pointer ? "OP_SOU" : "OP_PTR", member.range,
                std::string(is_pointer ? "." : "->") +
                    " cannot be applied to translated data of type " + name_of(xlate.translated));
  }
  if (!types_.find_member(translator.output, member.name)) {
    return fail("TYPE_MEMBER", member.name_range,
                name_of(translator.output) + " has no member " + member.name);
  }
  const auto found = translator.members.find(member.name);
  if (found == translator.members.end()) {
    return fail("XLATE_NOCONV", member.name_range,
                "the translator from " + name_of(translator.input) + " to " +
                    name_of(translator.output) + " says nothing of member " + member.name);
  }
  NodePtr node = make(NodeKind::kInline, *found->second->type, member.range);
  node->symbol = found->second;
  node->operands.push_back(xlate.operands.front());
  return node;
}

}  // namespace trapline::dlang
