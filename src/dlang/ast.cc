// Out-of-line parts of the tree's types, and how operators and specifiers are spelt.

#include "dlang/ast.h"

namespace trapline::dlang {

TypeSpecifier::TypeSpecifier() = default;
TypeSpecifier::TypeSpecifier(TypeSpecifier&&) noexcept = default;
TypeSpecifier& TypeSpecifier::operator=(TypeSpecifier&&) noexcept = default;
TypeSpecifier::~TypeSpecifier() = default;

DeclaratorPart::DeclaratorPart() = default;
DeclaratorPart::DeclaratorPart(DeclaratorPart&&) noexcept = default;
DeclaratorPart& DeclaratorPart::operator=(DeclaratorPart&&) noexcept = default;
DeclaratorPart::~DeclaratorPart() = default;

std::string_view spelling(UnaryOperator op) {
  switch (op) {
    case UnaryOperator::kPlus:
      return "+";
    case UnaryOperator::kMinus:
      return "-";
    case UnaryOperator::kComplement:
      return "~";
    case UnaryOperator::kNot:
      return "!";
    case UnaryOperator::kDereference:
      return "*";
    case UnaryOperator::kAddress:
      return "&";
    case UnaryOperator::kPreIncrement:
    case UnaryOperator::kPostIncrement:
      return "++";
    case UnaryOperator::kPreDecrement:
    case UnaryOperator::kPostDecrement:
      return "--";
    case UnaryOperator::kSizeof:
      return "sizeof";
    case UnaryOperator::kStringof:
      return "stringof";
  }
  return "?";
}

std::string_view spelling(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kRemainder:
      return "%";
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kShiftLeft:
      return "<<";
    case BinaryOperator::kShiftRight:
      return ">>";
    case BinaryOperator::kLess:
      return "<";
    case BinaryOperator::kLessEqual:
      return "<=";
    case BinaryOperator::kGreater:
      return ">";
    case BinaryOperator::kGreaterEqual:
      return ">=";
    case BinaryOperator::kEqual:
      return "==";
    case BinaryOperator::kNotEqual:
      return "!=";
    case BinaryOperator::kBitAnd:
      return "&";
    case BinaryOperator::kBitXor:
      return "^";
    case BinaryOperator::kBitOr:
      return "|";
    case BinaryOperator::kLogicalAnd:
      return "&&";
    case BinaryOperator::kLogicalXor:
      return "^^";
    case BinaryOperator::kLogicalOr:
      return "||";
    case BinaryOperator::kComma:
      return ",";
  }
  return "?";
}

std::string_view spelling(SpecifierKind kind) {
  switch (kind) {
    case SpecifierKind::kVoid:
      return "void";
    case SpecifierKind::kChar:
      return "char";
    case SpecifierKind::kShort:
      return "short";
    case SpecifierKind::kInt:
      return "int";
    case SpecifierKind::kLong:
      return "long";
    case SpecifierKind::kFloat:
      return "float";
    case SpecifierKind::kDouble:
      return "double";
    case SpecifierKind::kSigned:
      return "signed";
    case SpecifierKind::kUnsigned:
      return "unsigned";
    case SpecifierKind::kString:
      return "string";
    case SpecifierKind::kConst:
      return "const";
    case SpecifierKind::kVolatile:
      return "volatile";
    case SpecifierKind::kRestrict:
      return "restrict";
    case SpecifierKind::kTypedefName:
      return "typedef name";
    case SpecifierKind::kStruct:
      return "struct";
    case SpecifierKind::kUnion:
      return "union";
    case SpecifierKind::kEnum:
      return "enum";
  }
  return "?";
}

std::string_view spelling(StorageClass storage) {
  switch (storage) {
    case StorageClass::kAuto:
      return "auto";
    case StorageClass::kRegister:
      return "register";
    case StorageClass::kStatic:
      return "static";
    case StorageClass::kExtern:
      return "extern";
    case StorageClass::kTypedef:
      return "typedef";
    case StorageClass::kSelf:
      return "self";
    case StorageClass::kThis:
      return "this";
  }
  return "?";
}

}  // namespace trapline::dlang
