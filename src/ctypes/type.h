// The types of D and C programs: an interned table of them, their sizes and the layout of
// structures.
//
// A type is an index into a TypeTable; equal pointers, arrays and qualified types have equal ids,
// and so have all uses of one tag or typedef. Typedefs and qualifiers are types of their own that
// resolve() looks through: printing and some format checks need the name that the user wrote. Sizes
// and layout follow the System V ABI for x86-64 (LP64), section 3.1.2 "Data Representation",
// bit-fields included. `char` is signed there.
//
// Limits: floating-point types have a size and a name, nothing computes with them. Vector types,
// _Complex and _Alignas are not represented.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace trapline::ctypes {

enum class TypeId : std::uint32_t {};

enum class TypeKind : std::uint8_t {
  kVoid,
  kInteger,
  kFloat,
  kEnum,
  kPointer,
  kArray,
  kFunction,
  kStruct,
  kUnion,
  kTypedef,
  kQualified,
  kString,   // D's string
  kDynamic,  // the "type" of an aggregation or of an associative array without an index
  kStack,    // ustack(), stack()
  kSymbol,   // sym(), usym() and their like
};

using Qualifiers = std::uint8_t;
inline constexpr Qualifiers kConst = 1;
inline constexpr Qualifiers kVolatile = 2;
inline constexpr Qualifiers kRestrict = 4;

struct Member {
  std::string name;  // empty: an anonymous structure or union, or padding
  TypeId type;       // of a bit-field: its declared type
  std::uint64_t bit_offset = 0;
  std::uint32_t bit_width = 0;  // 0: not a bit-field
};

struct Enumerator {
  std::string name;
  std::int64_t value = 0;
};

struct Type {
  TypeKind kind = TypeKind::kVoid;
  std::string name;  // of integers, floats, typedefs and tags (without "struct "); empty: anonymous
  std::uint64_t size = 0;
  std::uint32_t align = 1;
  std::uint32_t bits = 0;  // kInteger: significant bits; fewer than 8 * size in a bit-field
  bool is_signed = false;
  bool is_char = false;
  bool is_bool = false;
  bool is_variadic = false;  // kFunction
  bool is_complete =
      true;  // kStruct, kUnion, kEnum: false for a tag that was only named; kArray: no count
  Qualifiers qualifiers = 0;  // kQualified
  TypeId target{};            // pointer, array, typedef, qualified, function (its result)
  std::uint64_t count = 0;    // kArray
  std::vector<Member> members;
  std::vector<Enumerator> enumerators;
  std::vector<TypeId> parameters;
};

// Fixed places in every table.
inline constexpr TypeId kVoid{0};
inline constexpr TypeId kBool{1};
inline constexpr TypeId kChar{2};
inline constexpr TypeId kSignedChar{3};
inline constexpr TypeId kUnsignedChar{4};
inline constexpr TypeId kShort{5};
inline constexpr TypeId kUnsignedShort{6};
inline constexpr TypeId kInt{7};
inline constexpr TypeId kUnsignedInt{8};
inline constexpr TypeId kLong{9};
inline constexpr TypeId kUnsignedLong{10};
inline constexpr TypeId kLongLong{11};
inline constexpr TypeId kUnsignedLongLong{12};
inline constexpr TypeId kFloat{13};
inline constexpr TypeId kDouble{14};
inline constexpr TypeId kLongDouble{15};
inline constexpr TypeId kString{16};
inline constexpr TypeId kDynamic{17};
inline constexpr TypeId kStack{18};
inline constexpr TypeId kSymbol{19};
inline constexpr std::uint32_t kFixedTypes = 20;

inline constexpr std::uint64_t kPointerSize = 8;
inline constexpr std::uint64_t kMaxTypeSize = std::uint64_t{1} << 32;  // larger ones are refused

// A member that was found by name, perhaps inside of anonymous ones.
struct FoundMember {
  TypeId type;
  std::uint64_t bit_offset = 0;
  std::uint32_t bit_width = 0;
};

class TypeTable {
 public:
  explicit TypeTable(std::uint32_t strsize = 256);

  const Type& get(TypeId id) const { return types_[static_cast<std::size_t>(id)]; }
  std::uint32_t strsize() const { return strsize_; }
  void set_strsize(std::uint32_t strsize);

  // Derived types; the same arguments give the same id.
  TypeId pointer_to(TypeId target);
  TypeId array_of(TypeId element, std::uint64_t count);
  TypeId incomplete_array_of(TypeId element);
  TypeId qualified(TypeId target, Qualifiers qualifiers);
  TypeId function(TypeId result, std::vector<TypeId> parameters, bool is_variadic);
  // The type that a value of a bit-field of `base` with `width` bits has. Precondition: base is an
  // integer or enum.
  TypeId bit_field(TypeId base, std::uint32_t width);

  // Names. declare_tag gives the tag's type, made incomplete when it is new; an empty tag is always
  // new. Unlike C, and as in DTrace, structures, unions and enums have name spaces of their own.
  TypeId declare_tag(TypeKind kind, std::string_view tag);
  std::optional<TypeId> find_tag(TypeKind kind, std::string_view tag) const;
  TypeId declare_typedef(std::string_view name, TypeId target);  // replaces an older one
  std::optional<TypeId> find_typedef(std::string_view name) const;
  // "unsigned long", "struct foo", "size_t"; trailing '*'s allowed.
  std::optional<TypeId> find(std::string_view name);

  // Completes a tag: computes the members' offsets and the size. false: the result would exceed
  // kMaxTypeSize, or a member's type is incomplete (a last array without a count is allowed).
  bool complete(TypeId tag, std::vector<Member> members);
  void complete_enum(TypeId tag, std::vector<Enumerator> enumerators);

  // Questions. All look through typedefs and qualifiers.
  TypeId resolve(TypeId id) const;
  TypeKind kind(TypeId id) const { return get(resolve(id)).kind; }
  std::uint64_t size(TypeId id) const;  // 0: incomplete, void, function, dynamic
  std::uint32_t align(TypeId id) const { return get(resolve(id)).align; }
  bool is_integer(TypeId id) const;  // enums too
  bool is_float(TypeId id) const { return kind(id) == TypeKind::kFloat; }
  bool is_scalar(TypeId id) const;   // integers, enums, pointers
  bool is_pointer(TypeId id) const;  // pointers and arrays
  bool is_string(TypeId id) const { return kind(id) == TypeKind::kString; }
  bool is_signed(TypeId id) const;        // integers and enums; false for others
  bool is_by_reference(TypeId id) const;  // structures, unions, arrays, functions
  bool is_string_like(TypeId id) const;   // string, or pointer to or array of char
  bool is_void_or_function_pointer(TypeId id) const;
  TypeId pointed_to(TypeId id) const;  // of a pointer or array; kVoid for others
  // Whether two types are the same but for typedefs and qualifiers; tags and base types by name.
  bool compatible(TypeId a, TypeId b) const;
  std::optional<FoundMember> find_member(TypeId structure, std::string_view name) const;
  std::optional<std::int64_t> find_enumerator(TypeId enumeration, std::string_view name) const;

  // The D rule for a binary operator's result (not C's: a type smaller than int stays small). The
  // wider type wins; of two equally wide the unsigned one, then the one with the higher rank.
  TypeId arithmetic_result(TypeId a, TypeId b) const;

  // As C writes it: "unsigned long", "struct foo *", "char [16]", "int (*)(char *)".
  std::string name(TypeId id) const;

 private:
  TypeId add(Type type);
  std::string name(TypeId id, int depth) const;
  bool compatible(TypeId a, TypeId b, int depth) const;
  std::optional<FoundMember> find_member(TypeId structure, std::string_view name, int depth) const;

  std::deque<Type> types_;  // references stay valid
  std::uint32_t strsize_;
  std::map<std::pair<TypeKind, std::string>, TypeId> tags_;
  std::map<std::string, TypeId, std::less<>> typedefs_;
  std::map<TypeId, TypeId> pointers_;
  std::map<std::tuple<TypeId, std::uint64_t, bool>, TypeId> arrays_;
  std::map<std::pair<TypeId, Qualifiers>, TypeId> qualified_;
  std::map<std::pair<TypeId, std::uint32_t>, TypeId> bit_fields_;
  std::map<std::tuple<TypeId, std::vector<TypeId>, bool>, TypeId> functions_;
};

}  // namespace trapline::ctypes
