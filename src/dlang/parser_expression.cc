// Expressions: C's, with ^^ between && and ||, aggregations, xlate and stringof.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dlang/names.h"
#include "dlang/parser_impl.h"

namespace trapline::dlang {
namespace {

struct OperatorInfo {
  int precedence = 0;  // 0: no binary operator
  BinaryOperator op = BinaryOperator::kComma;
};

OperatorInfo binary_operator(const Token& token) {
  switch (token.kind) {
    case TokenKind::kPipePipe:
      return {1, BinaryOperator::kLogicalOr};
    case TokenKind::kCaretCaret:
      return {2, BinaryOperator::kLogicalXor};
    case TokenKind::kAmpAmp:
      return {3, BinaryOperator::kLogicalAnd};
    case TokenKind::kPipe:
      return {4, BinaryOperator::kBitOr};
    case TokenKind::kCaret:
      return {5, BinaryOperator::kBitXor};
    case TokenKind::kAmp:
      return {6, BinaryOperator::kBitAnd};
    case TokenKind::kEqualEqual:
      return {7, BinaryOperator::kEqual};
    case TokenKind::kBangEqual:
      return {7, BinaryOperator::kNotEqual};
    case TokenKind::kLess:
      return {8, BinaryOperator::kLess};
    case TokenKind::kLessEqual:
      return {8, BinaryOperator::kLessEqual};
    case TokenKind::kGreater:
      return {8, BinaryOperator::kGreater};
    case TokenKind::kGreaterEqual:
      return {8, BinaryOperator::kGreaterEqual};
    case TokenKind::kShiftLeft:
      return {9, BinaryOperator::kShiftLeft};
    case TokenKind::kShiftRight:
      return {9, BinaryOperator::kShiftRight};
    case TokenKind::kPlus:
      return {10, BinaryOperator::kAdd};
    case TokenKind::kMinus:
      return {10, BinaryOperator::kSubtract};
    case TokenKind::kStar:
      return {11, BinaryOperator::kMultiply};
    case TokenKind::kPercent:
      return {11, BinaryOperator::kRemainder};
    case TokenKind::kSlash:
      return token.ends_predicate ? OperatorInfo{} : OperatorInfo{11, BinaryOperator::kDivide};
    default:
      return {};
  }
}

bool is_assignment(TokenKind kind) { return kind >= TokenKind::kAssign; }

std::optional<BinaryOperator> compound_operator(TokenKind kind) {
  switch (kind) {
    case TokenKind::kPlusAssign:
      return BinaryOperator::kAdd;
    case TokenKind::kMinusAssign:
      return BinaryOperator::kSubtract;
    case TokenKind::kStarAssign:
      return BinaryOperator::kMultiply;
    case TokenKind::kSlashAssign:
      return BinaryOperator::kDivide;
    case TokenKind::kPercentAssign:
      return BinaryOperator::kRemainder;
    case TokenKind::kAmpAssign:
      return BinaryOperator::kBitAnd;
    case TokenKind::kPipeAssign:
      return BinaryOperator::kBitOr;
    case TokenKind::kCaretAssign:
      return BinaryOperator::kBitXor;
    case TokenKind::kShiftLeftAssign:
      return BinaryOperator::kShiftLeft;
    case TokenKind::kShiftRightAssign:
      return BinaryOperator::kShiftRight;
    default:
      return std::nullopt;
  }
}

std::optional<UnaryOperator> prefix_operator(TokenKind kind) {
  switch (kind) {
    case TokenKind::kPlus:
      return UnaryOperator::kPlus;
    case TokenKind::kMinus:
      return UnaryOperator::kMinus;
    case TokenKind::kTilde:
      return UnaryOperator::kComplement;
    case TokenKind::kBang:
      return UnaryOperator::kNot;
    case TokenKind::kStar:
      return UnaryOperator::kDereference;
    case TokenKind::kAmp:
      return UnaryOperator::kAddress;
    case TokenKind::kPlusPlus:
      return UnaryOperator::kPreIncrement;
    case TokenKind::kMinusMinus:
      return UnaryOperator::kPreDecrement;
    case TokenKind::kStringof:
      return UnaryOperator::kStringof;
    default:
      return std::nullopt;
  }
}

// What the grammar lets stand to the left of an assignment; whether it can be assigned to is the
// checker's business.
bool is_unary_expression(const Expression& e) {
  if (e.parenthesized) return true;
  return e.kind != ExpressionKind::kBinary && e.kind != ExpressionKind::kConditional &&
         e.kind != ExpressionKind::kCast && e.kind != ExpressionKind::kAssign;
}

// Tokens after `(name)` that make it a cast if name can be a type; those that may also be binary
// operators are not among them.
bool surely_begins_operand(TokenKind kind) {
  switch (kind) {
    case TokenKind::kIdentifier:
    case TokenKind::kInteger:
    case TokenKind::kString:
    case TokenKind::kAggregation:
    case TokenKind::kSelf:
    case TokenKind::kThis:
    case TokenKind::kSizeof:
    case TokenKind::kOffsetof:
    case TokenKind::kStringof:
    case TokenKind::kXlate:
    case TokenKind::kTilde:
    case TokenKind::kBang:
      return true;
    default:
      return false;
  }
}

bool may_begin_operand(TokenKind kind) {
  switch (kind) {
    case TokenKind::kLeftParen:
    case TokenKind::kStar:
    case TokenKind::kAmp:
    case TokenKind::kPlus:
    case TokenKind::kMinus:
    case TokenKind::kPlusPlus:
    case TokenKind::kMinusMinus:
      return true;
    default:
      return surely_begins_operand(kind);
  }
}

}  // namespace

ExpressionPtr Parser::finish_at_depth(ExpressionPtr node, std::uint32_t begin,
                                      std::uint32_t deepest) {
  node->range = since(begin);
  node->depth = deepest + 1;
  if (node->depth <= kMaxTreeDepth) return node;
  diagnostics_.error(
      "SYNTAX", node->range,
      fmt::format("expression is too complex: more than {} operations within each other",
                  kMaxTreeDepth),
      "split it, with this-> variables for the parts");
  return nullptr;
}

ExpressionPtr Parser::finish(ExpressionPtr node, std::uint32_t begin,
                             std::initializer_list<const Expression*> children) {
  std::uint32_t deepest = 0;
  for (const Expression* child : children) deepest = std::max(deepest, child->depth);
  return finish_at_depth(std::move(node), begin, deepest);
}

ExpressionPtr Parser::finish(ExpressionPtr node, std::uint32_t begin, const Expression* first,
                             const std::vector<ExpressionPtr>& others) {
  std::uint32_t deepest = first->depth;
  for (const ExpressionPtr& child : others) deepest = std::max(deepest, child->depth);
  return finish_at_depth(std::move(node), begin, deepest);
}

ExpressionPtr Parser::expression() {
  const std::uint32_t begin = peek().range.begin;
  ExpressionPtr left = assignment();
  while (left != nullptr && at(TokenKind::kComma)) {
    auto node = make<Binary>();
    node->op = BinaryOperator::kComma;
    node->operator_range = take().range;
    node->right = assignment();
    if (node->right == nullptr) return nullptr;
    node->left = std::move(left);
    const std::initializer_list<const Expression*> children = {node->left.get(), node->right.get()};
    left = finish(std::move(node), begin, children);
  }
  return left;
}

ExpressionPtr Parser::assignment() {
  const Nest nest(*this);
  if (!nest.ok()) return nullptr;
  const std::uint32_t begin = peek().range.begin;
  ExpressionPtr left = conditional();
  if (left == nullptr || !is_assignment(peek().kind)) return left;
  if (!is_unary_expression(*left)) return syntax_error();
  auto node = make<Assign>();
  const Token op = take();
  node->op = compound_operator(op.kind);
  node->operator_range = op.range;
  if (const auto* name = left->get_if<Identifier>();
      name != nullptr && name->scope == VariableScope::kGlobal && !name->symbol) {
    variables_.insert(name->name);
  }
  node->target = std::move(left);
  node->value = assignment();
  if (node->value == nullptr) return nullptr;
  const std::initializer_list<const Expression*> children = {node->target.get(), node->value.get()};
  return finish(std::move(node), begin, children);
}

ExpressionPtr Parser::conditional() {
  const std::uint32_t begin = peek().range.begin;
  ExpressionPtr condition = binary(1);
  if (condition == nullptr || !at(TokenKind::kQuestion)) return condition;
  const Nest nest(*this);
  if (!nest.ok()) return nullptr;
  take();
  auto node = make<Conditional>();
  node->condition = std::move(condition);
  node->if_true = expression();
  if (node->if_true == nullptr || !expect(TokenKind::kColon)) return nullptr;
  node->if_false = conditional();
  if (node->if_false == nullptr) return nullptr;
  const std::initializer_list<const Expression*> children = {
      node->condition.get(), node->if_true.get(), node->if_false.get()};
  return finish(std::move(node), begin, children);
}

// Operators of precedence `least` and up, all of which associate to the left.
ExpressionPtr Parser::binary(int least) {
  const std::uint32_t begin = peek().range.begin;
  ExpressionPtr left = cast();
  while (left != nullptr) {
    const OperatorInfo info = binary_operator(peek());
    if (info.precedence == 0 || info.precedence < least) break;
    auto node = make<Binary>();
    node->op = info.op;
    node->operator_range = take().range;
    node->right = binary(info.precedence + 1);
    if (node->right == nullptr) return nullptr;
    node->left = std::move(left);
    const std::initializer_list<const Expression*> children = {node->left.get(), node->right.get()};
    left = finish(std::move(node), begin, children);
  }
  return left;
}

// At `(`: whether a type follows. A word is one if it is known as a type and not as a variable, and
// what follows the
// `)` can be cast. `(word *)` can be nothing else, so an unknown word there is an unknown type.
bool Parser::begins_cast() {
  const Token& first = peek(1);
  if (first.kind != TokenKind::kIdentifier) return starts_type(1);
  std::size_t ahead = 2;
  bool pointer = false;
  for (; peek(ahead).kind == TokenKind::kStar || peek(ahead).kind == TokenKind::kConst ||
         peek(ahead).kind == TokenKind::kVolatile || peek(ahead).kind == TokenKind::kRestrict;
       ++ahead) {
    pointer = true;
  }
  // `first` may have moved: peek() fills a queue.
  const std::string_view name = peek(1).text;
  if (peek(ahead).kind == TokenKind::kRightParen) {
    if (pointer) return true;
    return may_begin_operand(peek(ahead + 1).kind) && is_type_name(name);
  }
  return pointer &&
         (peek(ahead).kind == TokenKind::kLeftBracket ||
          peek(ahead).kind == TokenKind::kLeftParen) &&
         variables_.find(name) == variables_.end() && types_.contains(name);
}

ExpressionPtr Parser::cast() {
  if (!at(TokenKind::kLeftParen) || !begins_cast()) return unary();
  const Nest nest(*this);
  if (!nest.ok()) return nullptr;
  const std::uint32_t begin = take().range.begin;
  ++parens_;
  auto node = make<Cast>();
  node->type = type_name();
  if (node->type == nullptr || !expect(TokenKind::kRightParen)) return nullptr;
  --parens_;
  node->operand = cast();
  if (node->operand == nullptr) return nullptr;
  const Expression* operand = node->operand.get();
  return finish(std::move(node), begin, {operand});
}

ExpressionPtr Parser::unary() {
  const TokenKind kind = peek().kind;
  if (kind == TokenKind::kSizeof) return sizeof_expression();
  const std::optional<UnaryOperator> op = prefix_operator(kind);
  if (!op) return postfix();
  const Nest nest(*this);
  if (!nest.ok()) return nullptr;
  const std::uint32_t begin = take().range.begin;
  auto node = make<Unary>();
  node->op = *op;
  // The grammar wants a unary expression after ++, -- and stringof, a cast after the others.
  const bool narrow = op == UnaryOperator::kPreIncrement || op == UnaryOperator::kPreDecrement ||
                      op == UnaryOperator::kStringof;
  node->operand = narrow ? unary() : cast();
  if (node->operand == nullptr) return nullptr;
  const Expression* operand = node->operand.get();
  return finish(std::move(node), begin, {operand});
}

ExpressionPtr Parser::sizeof_expression() {
  const Nest nest(*this);
  if (!nest.ok()) return nullptr;
  const std::uint32_t begin = take().range.begin;
  if (at(TokenKind::kLeftParen)) {
    const bool name_only =
        peek(1).kind == TokenKind::kIdentifier && peek(2).kind == TokenKind::kRightParen;
    const bool is_type = name_only ? is_type_name(peek(1).text) : begins_cast();
    if (is_type) {
      take();
      ++parens_;
      auto node = make<SizeofType>();
      node->type = type_name();
      if (node->type == nullptr || !expect(TokenKind::kRightParen)) return nullptr;
      --parens_;
      return finish(std::move(node), begin, {});
    }
  }
  auto node = make<Unary>();
  node->op = UnaryOperator::kSizeof;
  node->operand = unary();
  if (node->operand == nullptr) return nullptr;
  const Expression* operand = node->operand.get();
  return finish(std::move(node), begin, {operand});
}

ExpressionPtr Parser::offsetof_expression() {
  const std::uint32_t begin = take().range.begin;
  auto node = make<Offsetof>();
  if (!expect(TokenKind::kLeftParen)) return nullptr;
  ++parens_;
  node->type = type_name();
  if (node->type == nullptr || !expect(TokenKind::kComma)) return nullptr;
  if (!expect_identifier(node->member, node->member_range) || !expect(TokenKind::kRightParen))
    return nullptr;
  --parens_;
  return finish(std::move(node), begin, {});
}

ExpressionPtr Parser::xlate_expression() {
  const std::uint32_t begin = take().range.begin;
  auto node = make<Xlate>();
  if (!expect(TokenKind::kLess)) return nullptr;
  node->type = type_name();
  if (node->type == nullptr || !expect(TokenKind::kGreater) || !expect(TokenKind::kLeftParen))
    return nullptr;
  ++parens_;
  node->operand = expression();
  if (node->operand == nullptr || !expect(TokenKind::kRightParen)) return nullptr;
  --parens_;
  const Expression* operand = node->operand.get();
  return finish(std::move(node), begin, {operand});
}

bool Parser::arguments(TokenKind closing, std::vector<ExpressionPtr>& out) {
  do {
    out.push_back(assignment());
    if (out.back() == nullptr) return false;
  } while (accept(TokenKind::kComma));
  return expect(closing);
}

ExpressionPtr Parser::member_access(ExpressionPtr base) {
  const std::uint32_t begin = base->range.begin;
  const Access access = take().kind == TokenKind::kArrow ? Access::kArrow : Access::kDot;
  if (auto* scope = base->get_if<Identifier>();
      scope != nullptr && access == Access::kArrow && !scope->symbol &&
      scope->scope == VariableScope::kGlobal && (scope->name == "self" || scope->name == "this")) {
    scope->scope = scope->name == "self" ? VariableScope::kSelf : VariableScope::kThis;
    diag::Range range;
    if (!expect_identifier(scope->name, range)) return nullptr;
    scope->range = since(begin);
    return base;
  }
  auto node = make<Member>();
  node->access = access;
  if (!expect_identifier(node->name, node->name_range)) return nullptr;
  node->base = std::move(base);
  const Expression* child = node->base.get();
  return finish(std::move(node), begin, {child});
}

ExpressionPtr Parser::postfix() {
  const std::uint32_t begin = peek().range.begin;
  ExpressionPtr base = primary();
  while (base != nullptr) {
    switch (peek().kind) {
      case TokenKind::kDot:
      case TokenKind::kArrow:
        base = member_access(std::move(base));
        break;
      case TokenKind::kLeftBracket: {
        take();
        ++brackets_;
        auto node = make<Index>();
        if (!arguments(TokenKind::kRightBracket, node->indices)) return nullptr;
        --brackets_;
        node->base = std::move(base);
        const Index& index = *node;
        base = finish(std::move(node), begin, index.base.get(), index.indices);
        break;
      }
      case TokenKind::kLeftParen: {
        take();
        ++parens_;
        auto node = make<Call>();
        if (!accept(TokenKind::kRightParen) && !arguments(TokenKind::kRightParen, node->arguments))
          return nullptr;
        --parens_;
        if (const auto* callee = base->get_if<Identifier>();
            callee == nullptr || callee->scope != VariableScope::kGlobal) {
          diagnostics_.error("FUNC_IDENT", base->range, "this is not a function");
          return nullptr;
        }
        node->callee = std::move(base);
        const Call& call = *node;
        base = finish(std::move(node), begin, call.callee.get(), call.arguments);
        break;
      }
      case TokenKind::kPlusPlus:
      case TokenKind::kMinusMinus: {
        auto node = make<Unary>();
        node->op = take().kind == TokenKind::kPlusPlus ? UnaryOperator::kPostIncrement
                                                       : UnaryOperator::kPostDecrement;
        node->operand = std::move(base);
        const Expression* operand = node->operand.get();
        base = finish(std::move(node), begin, {operand});
        break;
      }
      default:
        return base;
    }
  }
  return nullptr;
}

ExpressionPtr Parser::identifier(const Token& token) {
  auto node = make<Identifier>();
  const std::size_t tick = token.text.rfind('`');
  if (tick == std::string_view::npos) {
    node->name = std::string(token.text);
  } else {
    node->symbol = true;
    node->module = std::string(token.text.substr(0, tick));
    node->name = std::string(token.text.substr(tick + 1));
  }
  return finish(std::move(node), token.range.begin, {});
}

ExpressionPtr Parser::parenthesized() {
  const Nest nest(*this);
  if (!nest.ok()) return nullptr;
  const std::uint32_t begin = take().range.begin;
  ++parens_;
  ExpressionPtr inner = expression();
  if (inner == nullptr || !expect(TokenKind::kRightParen)) return nullptr;
  --parens_;
  inner->parenthesized = true;
  inner->range = since(begin);
  return inner;
}

ExpressionPtr Parser::primary() {
  switch (peek().kind) {
    case TokenKind::kIdentifier:
    case TokenKind::kSelf:
    case TokenKind::kThis:
      return identifier(take());
    case TokenKind::kLeftParen:
      return parenthesized();
    case TokenKind::kOffsetof:
      return offsetof_expression();
    case TokenKind::kXlate:
      return xlate_expression();
    case TokenKind::kInteger: {
      const Token token = take();
      auto node = make<IntegerLiteral>();
      node->value = token.integer.value;
      node->is_target = token.integer.is_target;
      node->negative = token.integer.negative;
      node->decimal = token.integer.decimal;
      node->unsigned_suffix = token.integer.unsigned_suffix;
      node->long_suffixes = token.integer.long_suffixes;
      node->character = token.integer.character;
      return finish(std::move(node), token.range.begin, {});
    }
    case TokenKind::kString: {
      Token token = take();
      auto node = make<StringLiteral>();
      node->value = std::move(token.string);
      return finish(std::move(node), token.range.begin, {});
    }
    case TokenKind::kAggregation: {
      const Token token = take();
      auto node = make<AggregationReference>();
      node->name = std::string(token.text);
      return finish(std::move(node), token.range.begin, {});
    }
    default:
      return syntax_error();
  }
}

// Variables come before types: the program's own, then D's. D`name and C`name are the program's
// types.
bool Parser::is_type_name(std::string_view name) {
  if (name.starts_with("D`") || name.starts_with("C`")) return types_.contains(name.substr(2));
  if (variables_.find(name) != variables_.end()) return false;
  if (types_.contains(name)) return true;
  if (find_builtin(name) != nullptr) return false;
  return request_.is_type && request_.is_type(name);
}

}  // namespace trapline::dlang
