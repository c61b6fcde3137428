// The checker's part for types: what the words and declarators of a declaration make.

#include <algorithm>
#include <limits>

#include "dlang/checker.h"

namespace trapline::dlang {
namespace {

using ctypes::TypeId;
using ctypes::TypeKind;

// The words of a declaration's type, counted.
struct TypeWords {
  int shorts = 0;
  int longs = 0;
  int is_signed = 0;
  int is_unsigned = 0;
  ctypes::Qualifiers qualifiers = 0;
  const TypeSpecifier* name = nullptr;    // int, char, struct s, my_t ...
  const TypeSpecifier* second = nullptr;  // one name too many
};

TypeWords count_words(const Specifiers& specifiers) {
  TypeWords words;
  for (const TypeSpecifier& specifier : specifiers.types) {
    switch (specifier.kind) {
      case SpecifierKind::kShort:
        ++words.shorts;
        break;
      case SpecifierKind::kLong:
        ++words.longs;
        break;
      case SpecifierKind::kSigned:
        ++words.is_signed;
        break;
      case SpecifierKind::kUnsigned:
        ++words.is_unsigned;
        break;
      case SpecifierKind::kConst:
        words.qualifiers |= ctypes::kConst;
        break;
      case SpecifierKind::kVolatile:
        words.qualifiers |= ctypes::kVolatile;
        break;
      case SpecifierKind::kRestrict:
        words.qualifiers |= ctypes::kRestrict;
        break;
      default:
        if (words.name == nullptr) {
          words.name = &specifier;
        } else if (words.second == nullptr) {
          words.second = &specifier;
        }
        break;
    }
  }
  return words;
}

bool is_integer_name(const TypeSpecifier* name) {
  return name == nullptr || name->kind == SpecifierKind::kInt ||
         name->kind == SpecifierKind::kChar || name->kind == SpecifierKind::kVoid;
}

TypeId integer_type(const TypeWords& words) {
  const bool is_unsigned = words.is_unsigned != 0;
  if (words.name != nullptr && words.name->kind == SpecifierKind::kChar) {
    if (is_unsigned) return ctypes::kUnsignedChar;
    return words.is_signed != 0 ? ctypes::kSignedChar : ctypes::kChar;
  }
  if (words.shorts != 0) return is_unsigned ? ctypes::kUnsignedShort : ctypes::kShort;
  if (words.longs >= 2) return is_unsigned ? ctypes::kUnsignedLongLong : ctypes::kLongLong;
  if (words.longs == 1) return is_unsigned ? ctypes::kUnsignedLong : ctypes::kLong;
  return is_unsigned ? ctypes::kUnsignedInt : ctypes::kInt;
}

bool has_scope_mark(std::string_view name) { return name.find('`') != std::string_view::npos; }

}  // namespace

// -------------------------------------------------------------------------------- types from words

std::optional<TypeId> Checker::specifiers_type(const Specifiers& specifiers) {
  const auto base = base_type(specifiers);
  if (!base) return std::nullopt;
  return types_.qualified(*base, count_words(specifiers).qualifiers);
}

std::optional<TypeId> Checker::base_type(const Specifiers& specifiers) {
  const TypeWords words = count_words(specifiers);
  if (words.second != nullptr) {
    report("DECL_COMBO", words.second->range, "these types do not go together");
    return std::nullopt;
  }
  const bool has_attribute = words.shorts + words.longs + words.is_signed + words.is_unsigned != 0;
  const auto name_is = [&](SpecifierKind kind) {
    return words.name != nullptr && words.name->kind == kind;
  };
  const diag::Range where = words.name != nullptr ? words.name->range : specifiers.range;
  if (name_is(SpecifierKind::kChar) && words.shorts + words.longs != 0) {
    report("DECL_CHARATTR", where, "short and long cannot be used with char");
    return std::nullopt;
  }
  if (name_is(SpecifierKind::kVoid) && has_attribute) {
    report("DECL_VOIDATTR", where, "void takes no short, long, signed or unsigned");
    return std::nullopt;
  }
  const bool is_float = name_is(SpecifierKind::kFloat) || name_is(SpecifierKind::kDouble);
  if (!is_integer_name(words.name) && words.is_signed + words.is_unsigned != 0) {
    report("DECL_SIGNINT", where, "signed and unsigned are for integers only");
    return std::nullopt;
  }
  if (!is_integer_name(words.name) && !is_float && words.longs != 0) {
    report("DECL_LONGINT", where, "long is for integers and double only");
    return std::nullopt;
  }
  if ((words.is_signed != 0 && words.is_unsigned != 0) || words.longs > 2 ||
      (words.shorts != 0 && words.longs != 0) || words.shorts > 1 ||
      (name_is(SpecifierKind::kFloat) && words.longs != 0) ||
      (is_float && (words.shorts != 0 || words.longs > 1)) ||
      (!is_integer_name(words.name) && words.shorts != 0)) {
    report("UNKNOWN", where, "there is no such type");
    return std::nullopt;
  }
  if (words.name == nullptr) return integer_type(words);
  switch (words.name->kind) {
    case SpecifierKind::kVoid:
      return ctypes::kVoid;
    case SpecifierKind::kFloat:
      return ctypes::kFloat;
    case SpecifierKind::kDouble:
      return words.longs != 0 ? ctypes::kLongDouble : ctypes::kDouble;
    case SpecifierKind::kString:
      return ctypes::kString;
    case SpecifierKind::kStruct:
    case SpecifierKind::kUnion:
    case SpecifierKind::kEnum:
      return tagged_type(*words.name);
    case SpecifierKind::kTypedefName:
      break;
    default:
      return integer_type(words);
  }
  if (has_scope_mark(words.name->name)) {
    report("DECL_SCOPE", where, "a type's name cannot have a scope here: " + words.name->name);
    return std::nullopt;
  }
  if (words.name->name == "_Bool") return ctypes::kBool;
  if (const auto known = types_.find(words.name->name)) return known;
  if (settings_.types != nullptr) {
    if (const auto known = settings_.types->find_type(types_, words.name->name)) return known;
  }
  report("UNKNOWN", where, "there is no type " + words.name->name);
  return std::nullopt;
}

std::optional<TypeId> Checker::tagged_type(const TypeSpecifier& specifier) {
  const TypeKind kind = specifier.kind == SpecifierKind::kStruct  ? TypeKind::kStruct
                        : specifier.kind == SpecifierKind::kUnion ? TypeKind::kUnion
                                                                  : TypeKind::kEnum;
  if (has_scope_mark(specifier.name)) {
    report("DECL_SCOPE", specifier.range,
           "a type's name cannot have a scope here: " + specifier.name);
    return std::nullopt;
  }
  const std::string spelled_name = std::string(spelling(specifier.kind)) + " " + specifier.name;
  if (!specifier.has_body && !types_.find_tag(kind, specifier.name) && settings_.types != nullptr) {
    if (const auto known = settings_.types->find_type(types_, spelled_name)) return known;
  }
  const TypeId tag = types_.declare_tag(kind, specifier.name);
  if (!specifier.has_body) return tag;
  if (types_.get(tag).is_complete) {
    report("DECL_TYPERED", specifier.range, "type redeclared: " + spelled_name);
    return std::nullopt;
  }
  const bool good =
      kind == TypeKind::kEnum ? define_enumerators(tag, specifier) : define_members(tag, specifier);
  if (!good) {
    broken_.insert(tag);
    return std::nullopt;
  }
  return tag;
}

bool Checker::define_members(TypeId tag, const TypeSpecifier& specifier) {
  std::vector<ctypes::Member> members;
  bool good = true;
  for (const MemberDeclaration& group : specifier.members) {
    if (!group.specifiers.storage.empty()) {
      report("DECL_BADCLASS", group.specifiers.storage.front().range,
             "a member has no storage class");
      good = false;
    }
    const auto base = specifiers_type(group.specifiers);
    if (!base) {
      good = false;
      continue;
    }
    for (const Declarator& declarator : group.declarators) {
      good = check_member(group, declarator, *base, members) && good;
    }
  }
  if (!good) return false;
  if (!types_.complete(tag, std::move(members))) {
    report("DECL_INCOMPLETE", specifier.range,
           types_.name(tag) + " is too large, or has a member of unknown size");
    return false;
  }
  return true;
}

bool Checker::check_member(const MemberDeclaration& group, const Declarator& declarator,
                           TypeId base, std::vector<ctypes::Member>& members) {
  const diag::Range where = declarator.name.empty() ? group.range : declarator.name_range;
  if (declarator.name.empty() && declarator.bit_width == nullptr) {
    report("DECL_MNAME", where, "a member needs a name");
    return false;
  }
  const auto declared = declarator_type(base, declarator);
  if (!declared) return false;
  if (has_scope_mark(declarator.name)) {
    report("DECL_SCOPE", where, "a member's name cannot have a scope: " + declarator.name);
    return false;
  }
  if (declared->associative) {
    report("DECL_DYNOBJ", where, "a member cannot be an associative array: " + declarator.name);
    return false;
  }
  const ctypes::Type& type = types_.get(types_.resolve(declared->type));
  const bool is_tagged = type.kind == TypeKind::kStruct || type.kind == TypeKind::kUnion ||
                         type.kind == TypeKind::kEnum;
  if (is_tagged && (!type.is_complete || type.size == 0)) {
    if (broken_.contains(types_.resolve(declared->type))) return false;
    report("DECL_INCOMPLETE", where,
           "incomplete type " + name_of(declared->type) + ": " + declarator.name);
    return false;
  }
  if (type.kind == TypeKind::kVoid || type.kind == TypeKind::kFunction) {
    report("DECL_VOIDOBJ", where,
           "a member cannot be of type " + name_of(declared->type) + ": " + declarator.name);
    return false;
  }
  if (!declarator.name.empty() &&
      std::ranges::find(members, declarator.name, &ctypes::Member::name) != members.end()) {
    report("UNKNOWN", where, "the member is there twice: " + declarator.name);
    return false;
  }
  ctypes::Member member{declarator.name, declared->type, 0, 0};
  if (declarator.bit_width != nullptr) {
    const auto width = bit_width(declarator, declared->type);
    if (!width) return false;
    member.bit_width = *width;
  }
  members.push_back(std::move(member));
  return true;
}

std::optional<std::uint32_t> Checker::bit_width(const Declarator& declarator, TypeId type) {
  const NodePtr node = check_expression(*declarator.bit_width);
  if (node == nullptr) return std::nullopt;
  const diag::Range where = declarator.bit_width->range;
  const bool is_constant = node->kind == NodeKind::kInteger;
  if (is_constant && node->value == 0 && declarator.name.empty()) return 0;
  if (!is_constant || node->value == 0 ||
      (types_.is_signed(node->type) && static_cast<std::int64_t>(node->value) < 0)) {
    report("DECL_BFCONST", where, "the size of a bit-field must be a positive integer constant");
    return std::nullopt;
  }
  if (types_.kind(type) != TypeKind::kInteger) {
    report("DECL_BFTYPE", declarator.name_range,
           "a bit-field must be an integer: " + declarator.name);
    return std::nullopt;
  }
  if (node->value > types_.get(types_.resolve(type)).bits) {
    report("DECL_BFSIZE", where, "the bit-field is wider than its type: " + declarator.name);
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(node->value);
}

bool Checker::define_enumerators(TypeId tag, const TypeSpecifier& specifier) {
  std::vector<ctypes::Enumerator> enumerators;
  std::int64_t next = 0;
  for (const Enumerator& item : specifier.enumerators) {
    if (has_scope_mark(item.name)) {
      report("DECL_SCOPE", item.range, "an enumerator's name cannot have a scope: " + item.name);
      return false;
    }
    if (item.value != nullptr) {
      const NodePtr value = check_expression(*item.value);
      if (value == nullptr) return false;
      if (value->kind != NodeKind::kInteger) {
        report("DECL_ENCONST", item.value->range,
               "the value of " + item.name + " must be an integer constant");
        return false;
      }
      next = static_cast<std::int64_t>(value->value);
    }
    if (next > std::numeric_limits<std::int32_t>::max() ||
        next < std::numeric_limits<std::int32_t>::min()) {
      report("DECL_ENOFLOW", item.range, "the value of " + item.name + " does not fit an int");
      return false;
    }
    if (std::ranges::find(enumerators, item.name, &ctypes::Enumerator::name) != enumerators.end()) {
      report("UNKNOWN", item.range, "the enumerator is there twice: " + item.name);
      return false;
    }
    if (is_global_name(item.name)) {
      report("DECL_IDRED", item.range, "identifier redeclared: " + item.name);
      return false;
    }
    enumerators.push_back({item.name, next});
    Symbol& symbol =
        create_symbol(SymbolKind::kEnumerator, VariableScope::kGlobal, item.name, item.range);
    symbol.declared = true;
    symbol.type = tag;
    symbol.value = make_integer(static_cast<std::uint64_t>(next), tag, item.range);
    ++next;
  }
  types_.complete_enum(tag, std::move(enumerators));
  return true;
}

// ------------------------------------------------------------------------------------- declarators

std::optional<Checker::Declared> Checker::declarator_type(TypeId base,
                                                          const Declarator& declarator) {
  Declared out;
  TypeId type = base;
  // The parts read from the name outwards, so the last one belongs to the base.
  for (std::size_t i = declarator.parts.size(); i-- > 0;) {
    const DeclaratorPart& part = declarator.parts[i];
    switch (part.kind) {
      case DeclaratorPartKind::kPointer: {
        ctypes::Qualifiers qualifiers = 0;
        for (SpecifierKind kind : part.qualifiers) {
          if (kind == SpecifierKind::kConst) qualifiers |= ctypes::kConst;
          if (kind == SpecifierKind::kVolatile) qualifiers |= ctypes::kVolatile;
          if (kind == SpecifierKind::kRestrict) qualifiers |= ctypes::kRestrict;
        }
        type = types_.qualified(types_.pointer_to(type), qualifiers);
        break;
      }
      case DeclaratorPartKind::kArray: {
        if (types_.kind(type) == TypeKind::kVoid) {
          report("DECL_VOIDOBJ", part.range, "there are no arrays of void");
          return std::nullopt;
        }
        if (!part.associative) {
          const auto array = array_type(type, part);
          if (!array) return std::nullopt;
          type = *array;
          break;
        }
        if (i != 0) {
          report("DECL_DYNOBJ", part.range, "an associative array cannot be part of another type");
          return std::nullopt;
        }
        const auto keys =
            parameter_types(part.parameters, Prototype::kArray, part.variadic, part.range);
        if (!keys) return std::nullopt;
        out.associative = true;
        out.keys = *keys;
        for (const Parameter& parameter : part.parameters) out.parameters.push_back(&parameter);
        break;
      }
      case DeclaratorPartKind::kFunction: {
        const auto parameters =
            parameter_types(part.parameters, Prototype::kFunction, part.variadic, part.range);
        if (!parameters) return std::nullopt;
        type = types_.function(type, *parameters, part.variadic);
        break;
      }
    }
  }
  out.type = type;
  return out;
}

std::optional<TypeId> Checker::array_type(TypeId element, const DeclaratorPart& part) {
  if (part.size == nullptr) return types_.incomplete_array_of(element);
  const NodePtr size = check_expression(*part.size);
  if (size == nullptr) return std::nullopt;
  if (size->kind != NodeKind::kInteger || size->value == 0 ||
      (types_.is_signed(size->type) && static_cast<std::int64_t>(size->value) < 0)) {
    report("DECL_ARRSUB", part.size->range,
           "the size of an array must be a positive integer constant, or the types of its keys");
    return std::nullopt;
  }
  if (size->value > std::numeric_limits<std::uint32_t>::max()) {
    report("DECL_ARRBIG", part.size->range, "the array is too big");
    return std::nullopt;
  }
  const TypeId type = types_.array_of(element, size->value);
  if (types_.size(type) > ctypes::kMaxTypeSize) {
    report("DECL_ARRBIG", part.size->range, "the array is too big");
    return std::nullopt;
  }
  return type;
}

std::optional<std::vector<TypeId>> Checker::parameter_types(
    const std::vector<Parameter>& parameters, Prototype prototype, bool variadic,
    diag::Range range) {
  static constexpr std::string_view kNames[] = {"function", "array", "provider"};
  const std::string what(kNames[static_cast<std::size_t>(prototype)]);
  if (variadic && prototype != Prototype::kFunction) {
    report("DECL_PROTO_VARARGS", range, "the parameters of this " + what + " cannot end with ...");
    return std::nullopt;
  }
  std::vector<TypeId> out;
  bool has_void = false;
  for (const Parameter& parameter : parameters) {
    if (!parameter.specifiers.storage.empty()) {
      report("DECL_PARMCLASS", parameter.specifiers.storage.front().range,
             "a parameter has no storage class");
      return std::nullopt;
    }
    const auto base = specifiers_type(parameter.specifiers);
    if (!base) return std::nullopt;
    const auto declared = declarator_type(*base, parameter.declarator);
    if (!declared) return std::nullopt;
    const bool is_void = types_.kind(declared->type) == TypeKind::kVoid && !declared->associative;
    if (declared->associative || (is_void && prototype == Prototype::kArray)) {
      report("DECL_PROTO_TYPE", parameter.range,
             "a parameter of this " + what + " cannot be of this type");
      return std::nullopt;
    }
    if (is_void && !parameter.declarator.name.empty()) {
      report("DECL_PROTO_NAME", parameter.range,
             "a void parameter has no name: " + parameter.declarator.name);
      return std::nullopt;
    }
    has_void = has_void || is_void;
    out.push_back(declared->type);
  }
  if (has_void && out.size() > 1) {
    report("DECL_PROTO_VOID", range, "void must be the only parameter");
    return std::nullopt;
  }
  if (has_void) out.clear();
  return out;
}

std::optional<TypeId> Checker::type_name(const TypeName& name) {
  const auto base = specifiers_type(name.specifiers);
  if (!base) return std::nullopt;
  const auto declared = declarator_type(*base, name.declarator);
  if (!declared) return std::nullopt;
  if (declared->associative) return ctypes::kDynamic;
  return declared->type;
}

}  // namespace trapline::dlang
