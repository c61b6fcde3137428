// The checker's part for declarations: which variables, types and inlines come to be.

#include <algorithm>

#include "dlang/checker.h"

namespace trapline::dlang {
namespace {

using ctypes::TypeId;
using ctypes::TypeKind;

bool is_system_typedef(std::string_view name) {
  static constexpr std::string_view kNames[] = {"uid_t", "gid_t", "off_t",    "time_t",   "mode_t",
                                                "dev_t", "ino_t", "ipaddr_t", "cpuinfo_t"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

bool has_scope_mark(std::string_view name) { return name.find('`') != std::string_view::npos; }

}  // namespace

bool Checker::is_global_name(std::string_view name) const {
  return globals_.contains(name) || find_builtin(name) != nullptr ||
         find_function(name) != nullptr || name == "self" || name == "this" || name == "args" ||
         name == "uregs";
}

void Checker::check_declaration(const Declaration& declaration) {
  if (declaration.specifiers.storage.size() > 1) {
    report("DECL_CLASS", declaration.specifiers.storage[1].range,
           "a declaration has at most one storage class");
    return;
  }
  const auto type = specifiers_type(declaration.specifiers);
  if (!type) {
    poison_tags(declaration.specifiers);
    poison(declaration);
    return;
  }
  if (declaration.declarators.empty()) {
    const bool is_tagged =
        std::ranges::any_of(declaration.specifiers.types, [](const TypeSpecifier& word) {
          return word.kind == SpecifierKind::kStruct || word.kind == SpecifierKind::kUnion ||
                 word.kind == SpecifierKind::kEnum;
        });
    if (!is_tagged) report("DECL_USELESS", declaration.range, "the declaration declares nothing");
    return;
  }
  for (const Declarator& declarator : declaration.declarators)
    declare(declaration, declarator, *type);
  poison(declaration);
}

// Names that a declaration with a mistake does not bring are not complained about again.
void Checker::poison(const Declaration& declaration) {
  VariableScope scope = VariableScope::kGlobal;
  for (const StorageClassSpecifier& storage : declaration.specifiers.storage) {
    if (storage.storage == StorageClass::kSelf) scope = VariableScope::kSelf;
    if (storage.storage == StorageClass::kThis) scope = VariableScope::kThis;
    if (storage.storage == StorageClass::kTypedef || storage.storage == StorageClass::kExtern)
      return;
  }
  for (const Declarator& declarator : declaration.declarators) {
    if (declarator.name.empty() || find_symbol(scope, declarator.name) != nullptr ||
        externs_.contains(declarator.name) || is_global_name(declarator.name))
      continue;
    create_symbol(SymbolKind::kScalar, scope, declarator.name, declarator.name_range).poisoned =
        true;
  }
}

// The tags that these words would have defined.
void Checker::poison_tags(const Specifiers& specifiers) {
  for (const TypeSpecifier& word : specifiers.types) {
    if (!word.has_body || word.name.empty()) continue;
    const TypeKind kind = word.kind == SpecifierKind::kStruct  ? TypeKind::kStruct
                          : word.kind == SpecifierKind::kUnion ? TypeKind::kUnion
                                                               : TypeKind::kEnum;
    broken_.insert(types_.declare_tag(kind, word.name));
  }
}

void Checker::declare(const Declaration& declaration, const Declarator& declarator, TypeId base) {
  const auto declared = declarator_type(base, declarator);
  if (!declared) return;
  if (has_scope_mark(declarator.name)) {
    report("DECL_SCOPE", declarator.name_range,
           "a name that is declared cannot have a scope: " + declarator.name);
    return;
  }
  StorageClass storage = StorageClass::kExtern;
  const bool has_storage = !declaration.specifiers.storage.empty();
  if (has_storage) storage = declaration.specifiers.storage.front().storage;
  const bool is_function =
      types_.kind(declared->type) == TypeKind::kFunction && !declared->associative;
  if (has_storage && storage == StorageClass::kTypedef) {
    declare_typedef(declarator, *declared);
    return;
  }
  if (is_function && (!has_storage || storage == StorageClass::kStatic)) {
    declare_extern(declarator, declared->type);
    return;
  }
  if (has_storage && storage == StorageClass::kExtern) {
    declare_extern(declarator, declared->type);
    return;
  }
  if (has_storage && storage != StorageClass::kSelf && storage != StorageClass::kThis) {
    report("DECL_BADCLASS", declaration.specifiers.storage.front().range,
           "the storage class " + std::string(spelling(storage)) + " has no meaning in D");
    return;
  }
  const VariableScope scope = !has_storage                     ? VariableScope::kGlobal
                              : storage == StorageClass::kSelf ? VariableScope::kSelf
                                                               : VariableScope::kThis;
  declare_variable(scope, declarator, *declared);
}

void Checker::declare_variable(VariableScope scope, const Declarator& declarator,
                               const Declared& declared) {
  const diag::Range where = declarator.name_range;
  const ctypes::Type& type = types_.get(types_.resolve(declared.type));
  if (type.kind == TypeKind::kArray && !type.is_complete) {
    report("DECL_ARRNULL", where,
           "the array needs a size, or the types of its keys: " + declarator.name);
    return;
  }
  Symbol* symbol = find_symbol(scope, declarator.name);
  if (scope == VariableScope::kGlobal && symbol == nullptr && is_global_name(declarator.name)) {
    report("DECL_IDRED", where, "D's own name cannot be declared: " + declarator.name);
    return;
  }
  if (types_.find_typedef(declarator.name)) {
    report("DECL_IDRED", where, "the name is a type: " + declarator.name);
    return;
  }
  if (declared.associative && scope == VariableScope::kThis) {
    report("DECL_LOCASSC", where,
           "an associative array cannot be of scope this: " + declarator.name);
    return;
  }
  if (symbol != nullptr && !symbol->is_fresh()) {
    check_redeclaration(*symbol, declared, declarator);
    return;
  }
  if (type.kind == TypeKind::kVoid) {
    report("DECL_VOIDOBJ", where, "a variable cannot be of type void: " + declarator.name);
    return;
  }
  const bool is_tagged = type.kind == TypeKind::kStruct || type.kind == TypeKind::kUnion ||
                         type.kind == TypeKind::kEnum;
  if (is_tagged && (!type.is_complete || type.size == 0)) {
    if (broken_.contains(types_.resolve(declared.type))) return;
    report("DECL_INCOMPLETE", where,
           "incomplete type " + name_of(declared.type) + ": " + declarator.name);
    return;
  }
  if (symbol == nullptr)
    symbol = &create_symbol(SymbolKind::kScalar, scope, declarator.name, where);
  symbol->kind = declared.associative ? SymbolKind::kArray : SymbolKind::kScalar;
  symbol->declared = true;
  symbol->poisoned = false;
  symbol->type = declared.type;
  symbol->first = where;
  if (declared.associative) symbol->keys = declared.keys;
}

void Checker::check_redeclaration(const Symbol& symbol, const Declared& declared,
                                  const Declarator& declarator) {
  const bool is_array = symbol.kind == SymbolKind::kArray;
  bool same = symbol.kind == SymbolKind::kScalar || is_array;
  same = same && is_array == declared.associative;
  same = same && symbol.type && types_.resolve(*symbol.type) == types_.resolve(declared.type);
  if (same && is_array) {
    same = symbol.keys && symbol.keys->size() == declared.keys.size();
    for (std::size_t i = 0; same && i < declared.keys.size(); ++i) {
      same = types_.resolve((*symbol.keys)[i]) == types_.resolve(declared.keys[i]);
    }
  }
  if (same) return;
  std::string text = "identifier redeclared: " + declarator.name;
  if (symbol.type)
    text += "; it was " + std::string(kind_name(symbol)) + " of type " + name_of(*symbol.type);
  report("DECL_IDRED", declarator.name_range, std::move(text));
}

void Checker::declare_extern(const Declarator& declarator, TypeId type) {
  const auto [known, added] = externs_.try_emplace(declarator.name, type);
  if (added || types_.resolve(known->second) == types_.resolve(type)) return;
  report(
      "DECL_IDRED", declarator.name_range,
      "identifier redeclared: " + declarator.name + "; it was of type " + name_of(known->second));
}

void Checker::declare_typedef(const Declarator& declarator, const Declared& declared) {
  if (is_global_name(declarator.name)) {
    report("DECL_IDRED", declarator.name_range,
           "the name is a variable's or function's: " + declarator.name);
    return;
  }
  if (declared.associative) {
    report("DECL_DYNOBJ", declarator.name_range,
           "a type cannot be an associative array: " + declarator.name);
    return;
  }
  // A program may define once more, and differently, the names that in DTrace only a kernel's types
  // would bring.
  if (types_.find_typedef(declarator.name) &&
      (typedefs_.contains(declarator.name) || !is_system_typedef(declarator.name))) {
    report("DECL_IDRED", declarator.name_range, "typedef redeclared: " + declarator.name);
    return;
  }
  types_.declare_typedef(declarator.name, declared.type);
  typedefs_.insert(declarator.name);
}

void Checker::check_inline(const InlineDefinition& definition) {
  const Declarator& declarator = definition.declarator;
  const diag::Range where = declarator.name_range;
  if (!definition.specifiers.storage.empty()) {
    report("DECL_BADCLASS", definition.specifiers.storage.front().range,
           "an inline has no storage class");
    return;
  }
  if (declarator.name.empty()) {
    report("DECL_USELESS", definition.range, "an inline needs a name");
    return;
  }
  const auto base = specifiers_type(definition.specifiers);
  if (!base) return;
  const auto declared = declarator_type(*base, declarator);
  if (!declared) return;
  if (has_scope_mark(declarator.name)) {
    report("DECL_SCOPE", where, "a name that is declared cannot have a scope: " + declarator.name);
    return;
  }
  if (is_global_name(declarator.name)) {
    report("DECL_IDRED", where, "identifier redefined: " + declarator.name);
    return;
  }
  if (types_.kind(declared->type) == TypeKind::kArray) {
    report("DECL_ARRNULL", where,
           "an inline array needs the types of its keys: " + declarator.name);
    return;
  }
  if (types_.kind(declared->type) == TypeKind::kVoid) {
    report("DECL_VOIDOBJ", where, "an inline cannot be of type void: " + declarator.name);
    return;
  }
  if (types_.is_by_reference(declared->type) && types_.size(declared->type) == 0) {
    report("DECL_INCOMPLETE", where,
           "incomplete type " + name_of(declared->type) + ": " + declarator.name);
    return;
  }
  symbols_.emplace_back();
  Symbol& symbol = symbols_.back();
  symbol.kind = declared->associative ? SymbolKind::kArrayInline : SymbolKind::kInline;
  symbol.name = declarator.name;
  symbol.first = where;
  symbol.declared = true;
  symbol.type = declared->type;
  if (declared->associative) {
    symbol.keys = declared->keys;
    for (std::size_t i = 0; i < declared->parameters.size(); ++i) {
      symbols_.emplace_back();
      Symbol& parameter = symbols_.back();
      parameter.kind = SymbolKind::kParameter;
      parameter.name = declared->parameters[i]->declarator.name;
      parameter.declared = true;
      if (i < declared->keys.size()) parameter.type = declared->keys[i];
      symbol.parameters.push_back(&parameter);
      if (!parameter.name.empty()) parameters_[parameter.name] = &parameter;
    }
  }
  // The value is checked before the name exists: an inline cannot refer to itself.
  NodePtr value = check_expression(*definition.value);
  parameters_.clear();
  const bool is_translated = value != nullptr && value->kind == NodeKind::kXlate &&
                             types_.compatible(declared->type, value->translated);
  if (value != nullptr && value->kind != NodeKind::kUnsupported && !is_translated &&
      !argument_fits(declared->type, *value)) {
    report("OP_INCOMPAT", definition.value->range,
           "inline " + declarator.name + " is of type " + name_of(declared->type) +
               ", its value of type " + name_of(*value));
    value = nullptr;
  }
  symbol.poisoned = value == nullptr;
  symbol.value = std::move(value);
  globals_[symbol.name] = &symbol;
}

}  // namespace trapline::dlang
