#include "ctypes/type.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace trapline::ctypes {
namespace {

TEST(TypeTable, SizesFollowTheAbi) {
  TypeTable table;
  EXPECT_EQ(table.size(kChar), sizeof(char));
  EXPECT_EQ(table.size(kShort), sizeof(short));
  EXPECT_EQ(table.size(kInt), sizeof(int));
  EXPECT_EQ(table.size(kLong), sizeof(long));
  EXPECT_EQ(table.size(kLongLong), sizeof(long long));
  EXPECT_EQ(table.size(kLongDouble), sizeof(long double));
  EXPECT_EQ(table.align(kLongDouble), alignof(long double));
  EXPECT_EQ(table.size(table.pointer_to(kVoid)), sizeof(void*));
  EXPECT_EQ(table.size(kVoid), 0u);
  EXPECT_EQ(table.size(kString), 256u);
  table.set_strsize(31);
  EXPECT_EQ(table.size(kString), 31u);
}

TEST(TypeTable, DerivedTypesAreInterned) {
  TypeTable table;
  EXPECT_EQ(table.pointer_to(kInt), table.pointer_to(kInt));
  EXPECT_NE(table.pointer_to(kInt), table.pointer_to(kLong));
  EXPECT_EQ(table.array_of(kInt, 3), table.array_of(kInt, 3));
  EXPECT_NE(table.array_of(kInt, 3), table.array_of(kInt, 4));
  EXPECT_EQ(table.qualified(kInt, kConst), table.qualified(kInt, kConst));
  EXPECT_EQ(table.qualified(table.qualified(kInt, kConst), kVolatile),
            table.qualified(kInt, kConst | kVolatile));
  EXPECT_EQ(table.qualified(kInt, 0), kInt);
  EXPECT_EQ(table.function(kInt, {kChar}, false), table.function(kInt, {kChar}, false));
  EXPECT_EQ(table.bit_field(kInt, 3), table.bit_field(kInt, 3));
}

TEST(TypeTable, NamesAreThoseOfC) {
  TypeTable table;
  const TypeId s = table.declare_tag(TypeKind::kStruct, "foo");
  EXPECT_EQ(table.name(kUnsignedLong), "unsigned long");
  EXPECT_EQ(table.name(table.pointer_to(s)), "struct foo *");
  EXPECT_EQ(table.name(table.pointer_to(table.pointer_to(kChar))), "char **");
  EXPECT_EQ(table.name(table.array_of(kChar, 16)), "char [16]");
  EXPECT_EQ(table.name(table.array_of(table.array_of(kInt, 2), 3)), "int [3][2]");
  EXPECT_EQ(table.name(table.pointer_to(table.array_of(kInt, 3))), "int (*)[3]");
  EXPECT_EQ(table.name(table.array_of(table.pointer_to(kInt), 3)), "int *[3]");
  EXPECT_EQ(table.name(table.pointer_to(table.function(kInt, {table.pointer_to(kChar)}, true))),
            "int (*)(char *, ...)");
  EXPECT_EQ(table.name(table.pointer_to(table.qualified(kChar, kConst))), "const char *");
  EXPECT_EQ(table.name(table.qualified(table.pointer_to(kChar), kConst)), "char *const");
  EXPECT_EQ(table.name(*table.find_typedef("size_t")), "size_t");
}

TEST(TypeTable, FindReadsNames) {
  TypeTable table;
  const TypeId s = table.declare_tag(TypeKind::kStruct, "foo");
  EXPECT_EQ(table.find("unsigned long"), kUnsignedLong);
  EXPECT_EQ(table.find("struct foo"), s);
  EXPECT_EQ(table.find("struct foo **"), table.pointer_to(table.pointer_to(s)));
  EXPECT_EQ(table.find("uint8_t *"), table.pointer_to(*table.find_typedef("uint8_t")));
  EXPECT_EQ(table.find("string"), kString);
  EXPECT_EQ(table.find("struct bar"), std::nullopt);
  EXPECT_EQ(table.find("nothing"), std::nullopt);
  EXPECT_EQ(table.find(""), std::nullopt);
}

TEST(TypeTable, QuestionsLookThroughTypedefsAndQualifiers) {
  TypeTable table;
  const TypeId name = table.declare_typedef("counter_t", table.qualified(kUnsignedInt, kVolatile));
  EXPECT_TRUE(table.is_integer(name));
  EXPECT_FALSE(table.is_signed(name));
  EXPECT_EQ(table.size(name), 4u);
  EXPECT_TRUE(table.compatible(name, kUnsignedInt));
  EXPECT_FALSE(table.compatible(name, kInt));
  EXPECT_TRUE(table.is_string_like(table.pointer_to(table.qualified(kChar, kConst))));
  EXPECT_TRUE(table.is_string_like(table.array_of(kChar, 4)));
  EXPECT_FALSE(table.is_string_like(table.pointer_to(kInt)));
  EXPECT_TRUE(table.is_void_or_function_pointer(table.pointer_to(kVoid)));
  EXPECT_FALSE(table.is_void_or_function_pointer(table.pointer_to(kChar)));
}

TEST(TypeTable, ArithmeticTakesTheWiderTypeAndPromotesNothing) {
  TypeTable table;
  EXPECT_EQ(table.arithmetic_result(kChar, kShort), kShort);
  EXPECT_EQ(table.arithmetic_result(kChar, kChar), kChar);
  EXPECT_EQ(table.arithmetic_result(kInt, kUnsignedInt), kUnsignedInt);
  EXPECT_EQ(table.arithmetic_result(kUnsignedInt, kLong), kLong);
  EXPECT_EQ(table.arithmetic_result(kLong, kLongLong), kLongLong);
  const TypeId e = table.declare_tag(TypeKind::kEnum, "e");
  table.complete_enum(e, {{"a", 0}, {"b", -1}});
  EXPECT_EQ(table.arithmetic_result(e, kShort), kInt);
  EXPECT_EQ(table.find_enumerator(e, "b"), -1);
}

// Structures as the compiler that builds this test lays them out.
struct Mixed {
  char a;
  int b;
  char c;
  short d;
  long e;
  char f[3];
};
union Either {
  char a;
  long b;
  char c[13];
};
struct Inner {
  char x;
  long double y;
};
struct Outer {
  short before;
  Inner inner;
  char after;
};

TEST(Layout, StructuresMatchTheCompiler) {
  TypeTable table;
  const TypeId s = table.declare_tag(TypeKind::kStruct, "mixed");
  ASSERT_TRUE(table.complete(s, {{"a", kChar, 0, 0},
                                 {"b", kInt, 0, 0},
                                 {"c", kChar, 0, 0},
                                 {"d", kShort, 0, 0},
                                 {"e", kLong, 0, 0},
                                 {"f", table.array_of(kChar, 3), 0, 0}}));
  EXPECT_EQ(table.size(s), sizeof(Mixed));
  EXPECT_EQ(table.align(s), alignof(Mixed));
  EXPECT_EQ(table.find_member(s, "b")->bit_offset, offsetof(Mixed, b) * 8);
  EXPECT_EQ(table.find_member(s, "d")->bit_offset, offsetof(Mixed, d) * 8);
  EXPECT_EQ(table.find_member(s, "e")->bit_offset, offsetof(Mixed, e) * 8);
  EXPECT_EQ(table.find_member(s, "f")->bit_offset, offsetof(Mixed, f) * 8);

  const TypeId u = table.declare_tag(TypeKind::kUnion, "either");
  ASSERT_TRUE(table.complete(
      u, {{"a", kChar, 0, 0}, {"b", kLong, 0, 0}, {"c", table.array_of(kChar, 13), 0, 0}}));
  EXPECT_EQ(table.size(u), sizeof(Either));
  EXPECT_EQ(table.find_member(u, "c")->bit_offset, 0u);

  const TypeId inner = table.declare_tag(TypeKind::kStruct, "inner");
  ASSERT_TRUE(table.complete(inner, {{"x", kChar, 0, 0}, {"y", kLongDouble, 0, 0}}));
  const TypeId outer = table.declare_tag(TypeKind::kStruct, "outer");
  ASSERT_TRUE(table.complete(
      outer, {{"before", kShort, 0, 0}, {"inner", inner, 0, 0}, {"after", kChar, 0, 0}}));
  EXPECT_EQ(table.size(outer), sizeof(Outer));
  EXPECT_EQ(table.find_member(outer, "inner")->bit_offset, offsetof(Outer, inner) * 8);
  EXPECT_EQ(table.find_member(outer, "after")->bit_offset, offsetof(Outer, after) * 8);
}

struct Bits {
  unsigned a : 3;
  int b : 30;
  unsigned char c : 5;
  unsigned : 0;
  unsigned short d : 9;
  unsigned short e : 9;
  long f : 33;
  char g;
};

// Where a field of all ones lies, found by looking.
template <typename Set>
std::uint64_t first_bit(Set set) {
  union {
    Bits bits;
    unsigned char bytes[sizeof(Bits)];
  } value{};
  set(value.bits);
  for (std::uint64_t i = 0; i < sizeof(Bits) * 8; ++i) {
    if (value.bytes[i / 8] >> (i % 8) & 1) return i;
  }
  return ~std::uint64_t{0};
}

TEST(Layout, BitFieldsMatchTheCompiler) {
  TypeTable table;
  const TypeId s = table.declare_tag(TypeKind::kStruct, "bits");
  ASSERT_TRUE(table.complete(s, {{"a", kUnsignedInt, 0, 3},
                                 {"b", kInt, 0, 30},
                                 {"c", kUnsignedChar, 0, 5},
                                 {"", kUnsignedInt, 0, 0},
                                 {"d", kUnsignedShort, 0, 9},
                                 {"e", kUnsignedShort, 0, 9},
                                 {"f", kLong, 0, 33},
                                 {"g", kChar, 0, 0}}));
  EXPECT_EQ(table.size(s), sizeof(Bits));
  EXPECT_EQ(table.align(s), alignof(Bits));
  EXPECT_EQ(table.find_member(s, "a")->bit_offset, first_bit([](Bits& x) { x.a = 1; }));
  EXPECT_EQ(table.find_member(s, "b")->bit_offset, first_bit([](Bits& x) { x.b = 1; }));
  EXPECT_EQ(table.find_member(s, "c")->bit_offset, first_bit([](Bits& x) { x.c = 1; }));
  EXPECT_EQ(table.find_member(s, "d")->bit_offset, first_bit([](Bits& x) { x.d = 1; }));
  EXPECT_EQ(table.find_member(s, "e")->bit_offset, first_bit([](Bits& x) { x.e = 1; }));
  EXPECT_EQ(table.find_member(s, "f")->bit_offset, first_bit([](Bits& x) { x.f = 1; }));
  EXPECT_EQ(table.find_member(s, "g")->bit_offset, first_bit([](Bits& x) { x.g = 1; }));
  EXPECT_EQ(table.find_member(s, "e")->bit_width, 9u);
}

TEST(Layout, AnonymousMembersAreFoundThrough) {
  TypeTable table;
  const TypeId inner = table.declare_tag(TypeKind::kUnion, "");
  ASSERT_TRUE(table.complete(inner, {{"x", kInt, 0, 0}, {"y", kChar, 0, 0}}));
  const TypeId outer = table.declare_tag(TypeKind::kStruct, "outer");
  ASSERT_TRUE(table.complete(outer, {{"a", kLong, 0, 0}, {"", inner, 0, 0}}));
  ASSERT_TRUE(table.find_member(outer, "y"));
  EXPECT_EQ(table.find_member(outer, "y")->bit_offset, 64u);
  EXPECT_FALSE(table.find_member(outer, "z"));
}

TEST(Layout, RefusesWhatHasNoSize) {
  TypeTable table;
  const TypeId unknown = table.declare_tag(TypeKind::kStruct, "unknown");
  const TypeId s = table.declare_tag(TypeKind::kStruct, "s");
  EXPECT_FALSE(table.complete(s, {{"a", unknown, 0, 0}}));
  EXPECT_FALSE(table.complete(s, {{"a", kVoid, 0, 0}}));
  EXPECT_FALSE(table.complete(s, {{"a", table.array_of(kLong, kMaxTypeSize), 0, 0}}));
  EXPECT_FALSE(
      table.complete(s, {{"a", table.incomplete_array_of(kInt), 0, 0}, {"b", kInt, 0, 0}}));
  EXPECT_TRUE(table.complete(s, {{"b", kInt, 0, 0}, {"a", table.incomplete_array_of(kInt), 0, 0}}));
  EXPECT_EQ(table.size(s), 4u);
}

TEST(TypeTable, ArraysOfATagGrowWithIt) {
  TypeTable table;
  const TypeId s = table.declare_tag(TypeKind::kStruct, "later");
  const TypeId array = table.array_of(s, 5);
  EXPECT_EQ(table.size(array), 0u);
  ASSERT_TRUE(table.complete(s, {{"a", kLong, 0, 0}, {"b", kChar, 0, 0}}));
  EXPECT_EQ(table.size(array), 80u);
}

}  // namespace
}  // namespace trapline::ctypes
