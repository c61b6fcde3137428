// See type.h.

#include "ctypes/type.h"

#include <algorithm>
#include <array>

#include "ctypes/layout.h"

namespace trapline::ctypes {
namespace {

// Types nest through pointers, members and parameters as deep as a user writes; what walks them
// stops here.
constexpr int kMaxDepth = 64;

struct FixedInteger {
  const char* name;
  std::uint32_t size;
  bool is_signed;
  bool is_char;
};
constexpr std::array<FixedInteger, 12> kIntegers = {{
    {"_Bool", 1, false, false},
    {"char", 1, true, true},
    {"signed char", 1, true, true},
    {"unsigned char", 1, false, true},
    {"short", 2, true, false},
    {"unsigned short", 2, false, false},
    {"int", 4, true, false},
    {"unsigned int", 4, false, false},
    {"long", 8, true, false},
    {"unsigned long", 8, false, false},
    {"long long", 8, true, false},
    {"unsigned long long", 8, false, false},
}};

// The names that D programs expect of <sys/types.h>.
struct FixedTypedef {
  const char* name;
  TypeId target;
};
constexpr FixedTypedef kTypedefs[] = {
    {"int8_t", kSignedChar},
    {"int16_t", kShort},
    {"int32_t", kInt},
    {"int64_t", kLong},
    {"intptr_t", kLong},
    {"ssize_t", kLong},
    {"uint8_t", kUnsignedChar},
    {"uint16_t", kUnsignedShort},
    {"uint32_t", kUnsignedInt},
    {"uint64_t", kUnsignedLong},
    {"uchar_t", kUnsignedChar},
    {"ushort_t", kUnsignedShort},
    {"uint_t", kUnsignedInt},
    {"ulong_t", kUnsignedLong},
    {"u_longlong_t", kUnsignedLongLong},
    {"ptrdiff_t", kLong},
    {"uintptr_t", kUnsignedLong},
    {"size_t", kUnsignedLong},
    {"id_t", kInt},
    {"pid_t", kInt},
    {"uid_t", kUnsignedInt},
    {"gid_t", kUnsignedInt},
    {"off_t", kLong},
    {"time_t", kLong},
    {"mode_t", kUnsignedInt},
    {"dev_t", kUnsignedLong},
    {"ino_t", kUnsignedLong},
    {"ipaddr_t", kUnsignedInt},
};

Type integer_type(const FixedInteger& info) {
  Type type;
  type.kind = TypeKind::kInteger;
  type.name = info.name;
  type.size = info.size;
  type.align = info.size;
  type.bits = info.size * 8;
  type.is_signed = info.is_signed;
  type.is_char = info.is_char;
  type.is_bool = std::string_view(info.name) == "_Bool";
  return type;
}

Type plain_type(TypeKind kind, std::string_view name, std::uint64_t size = 0,
                std::uint32_t align = 1) {
  Type type;
  type.kind = kind;
  type.name = name;
  type.size = size;
  type.align = align;
  return type;
}

std::string_view tag_keyword(TypeKind kind) {
  switch (kind) {
    case TypeKind::kStruct:
      return "struct";
    case TypeKind::kUnion:
      return "union";
    case TypeKind::kEnum:
      return "enum";
    default:
      return "";
  }
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

TypeTable::TypeTable(std::uint32_t strsize) : strsize_(strsize) {
  add(plain_type(TypeKind::kVoid, "void"));
  for (const FixedInteger& info : kIntegers) add(integer_type(info));
  add(plain_type(TypeKind::kFloat, "float", 4, 4));
  add(plain_type(TypeKind::kFloat, "double", 8, 8));
  add(plain_type(TypeKind::kFloat, "long double", 16, 16));
  add(plain_type(TypeKind::kString, "string", strsize));
  add(plain_type(TypeKind::kDynamic, "<DYN>"));
  add(plain_type(TypeKind::kStack, "stack"));
  add(plain_type(TypeKind::kSymbol, "_symaddr", 8, 8));
  for (const FixedTypedef& info : kTypedefs) declare_typedef(info.name, info.target);
}

void TypeTable::set_strsize(std::uint32_t strsize) {
  strsize_ = strsize;
  types_[static_cast<std::size_t>(kString)].size = strsize;
}

TypeId TypeTable::add(Type type) {
  types_.push_back(std::move(type));
  return static_cast<TypeId>(types_.size() - 1);
}

TypeId TypeTable::pointer_to(TypeId target) {
  const auto found = pointers_.find(target);
  if (found != pointers_.end()) return found->second;
  Type type = plain_type(TypeKind::kPointer, "", kPointerSize, kPointerSize);
  type.target = target;
  return pointers_[target] = add(std::move(type));
}

TypeId TypeTable::array_of(TypeId element, std::uint64_t count) {
  const auto key = std::make_tuple(element, count, true);
  const auto found = arrays_.find(key);
  if (found != arrays_.end()) return found->second;
  Type type = plain_type(TypeKind::kArray, "", 0, align(element));
  type.target = element;
  type.count = count;
  const std::uint64_t each = size(element);
  // A product that would not fit is kept above kMaxTypeSize, so that every use of it is refused.
  type.size = each != 0 && count > kMaxTypeSize / each ? kMaxTypeSize + 1 : each * count;
  return arrays_[key] = add(std::move(type));
}

TypeId TypeTable::incomplete_array_of(TypeId element) {
  const auto key = std::make_tuple(element, std::uint64_t{0}, false);
  const auto found = arrays_.find(key);
  if (found != arrays_.end()) return found->second;
  Type type = plain_type(TypeKind::kArray, "", 0, align(element));
  type.target = element;
  type.is_complete = false;
  return arrays_[key] = add(std::move(type));
}

TypeId TypeTable::qualified(TypeId target, Qualifiers qualifiers) {
  if (get(target).kind == TypeKind::kQualified) {
    qualifiers |= get(target).qualifiers;
    target = get(target).target;
  }
  if (qualifiers == 0) return target;
  const auto key = std::make_pair(target, qualifiers);
  const auto found = qualified_.find(key);
  if (found != qualified_.end()) return found->second;
  Type type = plain_type(TypeKind::kQualified, "");
  type.target = target;
  type.qualifiers = qualifiers;
  return qualified_[key] = add(std::move(type));
}

TypeId TypeTable::function(TypeId result, std::vector<TypeId> parameters, bool is_variadic) {
  auto key = std::make_tuple(result, parameters, is_variadic);
  const auto found = functions_.find(key);
  if (found != functions_.end()) return found->second;
  Type type = plain_type(TypeKind::kFunction, "");
  type.target = result;
  type.parameters = std::move(parameters);
  type.is_variadic = is_variadic;
  return functions_[std::move(key)] = add(std::move(type));
}

TypeId TypeTable::bit_field(TypeId base, std::uint32_t width) {
  const auto key = std::make_pair(base, width);
  const auto found = bit_fields_.find(key);
  if (found != bit_fields_.end()) return found->second;
  Type type = get(resolve(base));
  if (type.kind == TypeKind::kEnum) {
    type = get(kInt);
  }
  type.bits = width;
  return bit_fields_[key] = add(std::move(type));
}

std::optional<TypeId> TypeTable::find_tag(TypeKind kind, std::string_view tag) const {
  const auto found = tags_.find({kind, std::string(tag)});
  if (found == tags_.end()) return std::nullopt;
  return found->second;
}

TypeId TypeTable::declare_tag(TypeKind kind, std::string_view tag) {
  if (!tag.empty()) {
    if (const auto found = find_tag(kind, tag)) return *found;
  }
  Type type = plain_type(kind, tag);
  type.is_complete = false;
  const TypeId id = add(std::move(type));
  if (!tag.empty()) tags_[{kind, std::string(tag)}] = id;
  return id;
}

TypeId TypeTable::declare_typedef(std::string_view name, TypeId target) {
  Type type = plain_type(TypeKind::kTypedef, name);
  type.target = target;
  const TypeId id = add(std::move(type));
  typedefs_[std::string(name)] = id;
  return id;
}

std::optional<TypeId> TypeTable::find_typedef(std::string_view name) const {
  const auto found = typedefs_.find(name);
  if (found == typedefs_.end()) return std::nullopt;
  return found->second;
}

std::optional<TypeId> TypeTable::find(std::string_view name) {
  name = trim(name);
  std::uint32_t stars = 0;
  while (!name.empty() && name.back() == '*') {
    name = trim(name.substr(0, name.size() - 1));
    ++stars;
  }
  std::optional<TypeId> id;
  for (TypeKind kind : {TypeKind::kStruct, TypeKind::kUnion, TypeKind::kEnum}) {
    const std::string_view keyword = tag_keyword(kind);
    if (name.size() > keyword.size() && name.starts_with(keyword) && name[keyword.size()] == ' ') {
      id = find_tag(kind, trim(name.substr(keyword.size())));
      if (!id) return std::nullopt;
    }
  }
  for (std::uint32_t i = 0; !id && i <= static_cast<std::uint32_t>(kString); ++i) {
    if (types_[i].name == name) id = static_cast<TypeId>(i);
  }
  if (!id) id = find_typedef(name);
  if (!id) return std::nullopt;
  for (; stars != 0; --stars) id = pointer_to(*id);
  return id;
}

bool TypeTable::complete(TypeId tag, std::vector<Member> members) {
  const auto layout = lay_out_members(*this, get(tag).kind, members);
  if (!layout) return false;
  Type& type = types_[static_cast<std::size_t>(tag)];
  type.members = std::move(members);
  type.size = layout->size;
  type.align = layout->align;
  type.is_complete = true;
  // Arrays of the tag that were made while it was incomplete get their size now.
  for (const auto& [key, id] : arrays_) {
    if (resolve(std::get<0>(key)) != tag) continue;
    Type& array = types_[static_cast<std::size_t>(id)];
    array.align = layout->align;
    array.size = layout->size != 0 && array.count > kMaxTypeSize / layout->size
                     ? kMaxTypeSize + 1
                     : array.count * layout->size;
  }
  return true;
}

void TypeTable::complete_enum(TypeId tag, std::vector<Enumerator> enumerators) {
  Type& type = types_[static_cast<std::size_t>(tag)];
  type.enumerators = std::move(enumerators);
  type.size = 4;
  type.align = 4;
  type.bits = 32;
  type.is_signed = true;
  type.is_complete = true;
}

TypeId TypeTable::resolve(TypeId id) const {
  // A typedef's target always is older than it, so this ends.
  while (get(id).kind == TypeKind::kTypedef || get(id).kind == TypeKind::kQualified)
    id = get(id).target;
  return id;
}

std::uint64_t TypeTable::size(TypeId id) const { return get(resolve(id)).size; }

bool TypeTable::is_integer(TypeId id) const {
  const TypeKind k = kind(id);
  return k == TypeKind::kInteger || k == TypeKind::kEnum;
}

bool TypeTable::is_scalar(TypeId id) const {
  return is_integer(id) || kind(id) == TypeKind::kPointer;
}

bool TypeTable::is_pointer(TypeId id) const {
  const TypeKind k = kind(id);
  return k == TypeKind::kPointer || k == TypeKind::kArray;
}

bool TypeTable::is_signed(TypeId id) const { return get(resolve(id)).is_signed; }

bool TypeTable::is_by_reference(TypeId id) const {
  switch (kind(id)) {
    case TypeKind::kStruct:
    case TypeKind::kUnion:
    case TypeKind::kArray:
    case TypeKind::kFunction:
      return true;
    default:
      return false;
  }
}

bool TypeTable::is_string_like(TypeId id) const {
  if (is_string(id)) return true;
  if (!is_pointer(id)) return false;
  const Type& element = get(resolve(pointed_to(id)));
  return element.kind == TypeKind::kInteger && element.is_char;
}

bool TypeTable::is_void_or_function_pointer(TypeId id) const {
  if (kind(id) != TypeKind::kPointer) return false;
  const TypeKind k = kind(pointed_to(id));
  return k == TypeKind::kVoid || k == TypeKind::kFunction;
}

TypeId TypeTable::pointed_to(TypeId id) const {
  const Type& type = get(resolve(id));
  return type.kind == TypeKind::kPointer || type.kind == TypeKind::kArray ? type.target : kVoid;
}

bool TypeTable::compatible(TypeId a, TypeId b) const { return compatible(a, b, 0); }

bool TypeTable::compatible(TypeId a, TypeId b, int depth) const {
  a = resolve(a);
  b = resolve(b);
  if (a == b) return true;
  if (depth > kMaxDepth) return false;
  const Type& left = get(a);
  const Type& right = get(b);
  if (left.kind != right.kind) return false;
  switch (left.kind) {
    case TypeKind::kInteger:
    case TypeKind::kFloat:
      return left.name == right.name && left.bits == right.bits;
    case TypeKind::kEnum:
    case TypeKind::kStruct:
    case TypeKind::kUnion:
      return !left.name.empty() && left.name == right.name && left.size == right.size;
    case TypeKind::kPointer:
      return compatible(left.target, right.target, depth + 1);
    case TypeKind::kArray:
      return left.count == right.count && compatible(left.target, right.target, depth + 1);
    case TypeKind::kFunction: {
      if (left.parameters.size() != right.parameters.size() ||
          left.is_variadic != right.is_variadic)
        return false;
      for (std::size_t i = 0; i < left.parameters.size(); ++i) {
        if (!compatible(left.parameters[i], right.parameters[i], depth + 1)) return false;
      }
      return compatible(left.target, right.target, depth + 1);
    }
    default:
      return true;
  }
}

std::optional<FoundMember> TypeTable::find_member(TypeId structure, std::string_view name) const {
  return find_member(structure, name, 0);
}

std::optional<FoundMember> TypeTable::find_member(TypeId structure, std::string_view name,
                                                  int depth) const {
  if (depth > kMaxDepth || name.empty()) return std::nullopt;
  for (const Member& member : get(resolve(structure)).members) {
    if (member.name == name) return FoundMember{member.type, member.bit_offset, member.bit_width};
    if (!member.name.empty()) continue;
    auto inner = find_member(member.type, name, depth + 1);
    if (!inner) continue;
    inner->bit_offset += member.bit_offset;
    return inner;
  }
  return std::nullopt;
}

std::optional<std::int64_t> TypeTable::find_enumerator(TypeId enumeration,
                                                       std::string_view name) const {
  for (const Enumerator& item : get(resolve(enumeration)).enumerators) {
    if (item.name == name) return item.value;
  }
  return std::nullopt;
}

TypeId TypeTable::arithmetic_result(TypeId a, TypeId b) const {
  if (kind(a) == TypeKind::kEnum) a = kInt;
  if (kind(b) == TypeKind::kEnum) b = kInt;
  const Type& left = get(resolve(a));
  const Type& right = get(resolve(b));
  const std::uint32_t left_rank = left.bits + (left.is_signed ? 0 : 1);
  const std::uint32_t right_rank = right.bits + (right.is_signed ? 0 : 1);
  if (left_rank != right_rank) return left_rank > right_rank ? a : b;
  return resolve(a) >= resolve(b) ? a : b;
}

std::string TypeTable::name(TypeId id) const { return name(id, 0); }

std::string TypeTable::name(TypeId id, int depth) const {
  if (depth > kMaxDepth) return "...";
  // From the outside in, a declarator grows around `inner`.
  std::string inner;
  Qualifiers pending = 0;
  const auto qualifier_text = [](Qualifiers qualifiers) {
    std::string text;
    if (qualifiers & kConst) text += "const ";
    if (qualifiers & kVolatile) text += "volatile ";
    if (qualifiers & kRestrict) text += "restrict ";
    return text;
  };
  for (;;) {
    const Type& type = get(id);
    switch (type.kind) {
      case TypeKind::kQualified:
        pending |= type.qualifiers;
        break;
      case TypeKind::kPointer: {
        std::string text = "*";
        if (pending != 0) {
          text += qualifier_text(pending);
          if (inner.empty()) text.pop_back();
        }
        pending = 0;
        inner = text + inner;
        break;
      }
      case TypeKind::kArray:
        if (inner.starts_with('*')) inner = "(" + inner + ")";
        inner += type.is_complete ? "[" + std::to_string(type.count) + "]" : "[]";
        break;
      case TypeKind::kFunction: {
        if (inner.starts_with('*')) inner = "(" + inner + ")";
        std::string parameters;
        for (TypeId parameter : type.parameters) {
          if (!parameters.empty()) parameters += ", ";
          parameters += name(parameter, depth + 1);
        }
        if (type.is_variadic) parameters += parameters.empty() ? "..." : ", ...";
        inner += "(" + parameters + ")";
        break;
      }
      default: {
        std::string base = qualifier_text(pending);
        const std::string_view keyword = tag_keyword(type.kind);
        if (!keyword.empty()) base += std::string(keyword) + " ";
        base += type.name.empty() ? "(anon)" : type.name;
        return inner.empty() ? base : base + " " + inner;
      }
    }
    id = type.target;
  }
}

}  // namespace trapline::ctypes
