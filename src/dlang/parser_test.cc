#include "dlang/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "diag/render.h"
#include "dlang/ast_print.h"

namespace trapline::dlang {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ParserTest : public testing::Test {
 protected:
  ParserTest() {
    macros_.arguments = {"t.d"};
    request_.macros = &macros_;
  }
  ParseResult parse_program(std::string text, diag::SourceKind kind = diag::SourceKind::kScript) {
    request_.source = *sources_.add("t.d", std::move(text), kind);
    diagnostics_ = diag::Diagnostics();
    return parse(request_, sources_, diagnostics_);
  }
  std::string tree(std::string text, diag::SourceKind kind = diag::SourceKind::kScript) {
    const ParseResult result = parse_program(std::move(text), kind);
    return print_tree(*result.program) + diag::render_all(sources_, diagnostics_);
  }
  // An expression, or the first complaint.
  std::string expression(std::string text) {
    request_.source = *sources_.add("t.d", std::move(text), diag::SourceKind::kScript);
    diagnostics_ = diag::Diagnostics();
    const ExpressionPtr result = parse_expression(request_, sources_, diagnostics_);
    EXPECT_EQ(result == nullptr, diagnostics_.has_errors());
    return result == nullptr ? diagnostics_.sorted().front().text : to_text(*result);
  }
  std::string type(std::string text) {
    request_.source = *sources_.add("t.d", std::move(text), diag::SourceKind::kScript);
    diagnostics_ = diag::Diagnostics();
    const TypeNamePtr result = parse_type_name(request_, sources_, diagnostics_);
    return result == nullptr ? diagnostics_.sorted().front().text : to_text(*result);
  }
  // The one declarator of a declaration, in words.
  std::string declared(std::string text) {
    const ParseResult result = parse_program(std::move(text) + ";");
    if (diagnostics_.has_errors()) return diagnostics_.sorted().front().text;
    const auto& item = result.program->items.back()->as<Declaration>();
    return to_text(item.specifiers, item.declarators.front());
  }
  // "line: TAG text" of each complaint about a program.
  std::vector<std::string> complaints(std::string text,
                                      diag::SourceKind kind = diag::SourceKind::kScript) {
    parse_program(std::move(text), kind);
    std::vector<std::string> result;
    for (const diag::Diagnostic& diagnostic : diagnostics_.sorted()) {
      result.push_back(std::to_string(sources_.position(diagnostic.range.start()).line) + ": " +
                       diagnostic.tag + " " + diagnostic.text);
    }
    return result;
  }

  diag::SourceManager sources_;
  diag::Diagnostics diagnostics_;
  Macros macros_;
  ParseRequest request_;
};

// ------------------------------------------------------------------------------------- expressions

TEST_F(ParserTest, PrecedenceIsThatOfD) {
  EXPECT_EQ(expression("a + b * c"), "(+ a (* b c))");
  EXPECT_EQ(expression("a - b - c"), "(- (- a b) c)");
  EXPECT_EQ(expression("a % b / c"), "(/ (% a b) c)");
  EXPECT_EQ(expression("a << b + c"), "(<< a (+ b c))");
  EXPECT_EQ(expression("a < b << c"), "(< a (<< b c))");
  EXPECT_EQ(expression("a == b >= c"), "(== a (>= b c))");
  EXPECT_EQ(expression("a & b != c"), "(& a (!= b c))");
  EXPECT_EQ(expression("a ^ b & c"), "(^ a (& b c))");
  EXPECT_EQ(expression("a | b ^ c"), "(| a (^ b c))");
  EXPECT_EQ(expression("a && b | c"), "(&& a (| b c))");
  EXPECT_EQ(expression("a ^^ b && c"), "(^^ a (&& b c))");
  EXPECT_EQ(expression("a && b ^^ c"), "(^^ (&& a b) c)");
  EXPECT_EQ(expression("a || b ^^ c"), "(|| a (^^ b c))");
  EXPECT_EQ(expression("a ? b : c ? d : e"), "(? a b (? c d e))");
  EXPECT_EQ(expression("a || b ? c, d : e"), "(? (|| a b) (, c d) e)");
  EXPECT_EQ(expression("a = b = c"), "(= a (= b c))");
  EXPECT_EQ(expression("a += b ? c : d"), "(+= a (? b c d))");
  EXPECT_EQ(expression("a = b, c"), "(, (= a b) c)");
  EXPECT_EQ(expression("(a + b) * c"), "(* (+ a b) c)");
}

TEST_F(ParserTest, UnaryOperators) {
  EXPECT_EQ(expression("-a * !b"), "(* (- a) (! b))");
  EXPECT_EQ(expression("- -a"), "(- (- a))");
  EXPECT_EQ(expression("*p++"), "(* (post++ p))");
  EXPECT_EQ(expression("++*p"), "(++ (* p))");
  EXPECT_EQ(expression("a++ + ++b"), "(+ (post++ a) (++ b))");
  EXPECT_EQ(expression("a--"), "(post-- a)");
  EXPECT_EQ(expression("&a[1]"), "(& ([] a 1))");
  EXPECT_EQ(expression("~a.b"), "(~ (. a b))");
  EXPECT_EQ(expression("stringof a + b"), "(+ (stringof a) b)");
  EXPECT_EQ(expression("stringof(a->b)"), "(stringof (-> a b))");
  EXPECT_EQ(expression("sizeof a[0]"), "(sizeof ([] a 0x0))");
}

TEST_F(ParserTest, EveryAssignment) {
  for (const char* op : {"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"}) {
    EXPECT_EQ(expression(std::string("x ") + op + "= 1"), std::string("(") + op + "= x 1)");
  }
  EXPECT_EQ(expression("a + b = c"), "syntax error near \"=\"");
  EXPECT_EQ(expression("(a) = c"), "(= a c)");
}

TEST_F(ParserTest, VariablesAndTheirScopes) {
  EXPECT_EQ(expression("self->x + this->y + z"), "(+ (+ self->x this->y) z)");
  EXPECT_EQ(expression("self->p->q"), "(-> self->p q)");
  EXPECT_EQ(expression("self->a[1, tid]"), "([] self->a 1 tid)");
  EXPECT_EQ(expression("self"), "self");
  EXPECT_EQ(expression("self.x"), "(. self x)");
  EXPECT_EQ(expression("`sym + mod`sym + a`b`c"), "(+ (+ `sym mod`sym) a`b`c)");
  EXPECT_EQ(expression("p->string"), "(-> p string)");
  EXPECT_EQ(expression("self->int"), "self->int");
}

TEST_F(ParserTest, CallsAggregationsAndIndices) {
  EXPECT_EQ(expression("f()"), "(call f)");
  EXPECT_EQ(expression("f(a, b = c, (d, e))"), "(call f a (= b c) (, d e))");
  EXPECT_EQ(expression("@[a, b] = count()"), "(= ([] @_ a b) (call count))");
  EXPECT_EQ(expression("@x = sum(1)"), "(= @x (call sum 1))");
  EXPECT_EQ(expression("@x[1][2]"), "([] ([] @x 1) 2)");
  EXPECT_EQ(expression("f(1)(2)"), "this is not a function");
  EXPECT_EQ(expression("a[]"), "syntax error near \"]\"");
  EXPECT_EQ(expression("f(,)"), "syntax error near \",\"");
}

TEST_F(ParserTest, Constants) {
  EXPECT_EQ(expression("10"), "10");
  EXPECT_EQ(expression("0x10ull"), "0x10ull");
  EXPECT_EQ(expression("'a'"), "97");
  EXPECT_EQ(expression(R"("a\n")"), R"("a\n")");
  EXPECT_EQ(expression("1.5"), "floating-point constants are not permitted");
}

TEST_F(ParserTest, Casts) {
  EXPECT_EQ(expression("(int)a + b"), "(+ (cast <int> a) b)");
  EXPECT_EQ(expression("(unsigned long long)-1"), "(cast <unsigned long long> (- 1))");
  EXPECT_EQ(expression("(struct s *)a->b"), "(cast <pointer to struct s> (-> a b))");
  EXPECT_EQ(expression("(char)(short)x"), "(cast <char> (cast <short> x))");
  EXPECT_EQ(expression("(string)a"), "(cast <string> a)");
  EXPECT_EQ(expression("(uint64_t)a"), "(cast <uint64_t> a)");
  EXPECT_EQ(expression("(int (*)[3])a"), "(cast <pointer to array 3 of int> a)");
  EXPECT_EQ(expression("*(int *)a"), "(* (cast <pointer to int> a))");
  EXPECT_EQ(expression("-(int)a"), "(- (cast <int> a))");
}

TEST_F(ParserTest, AWordInParenthesesIsACastOnlyIfItIsAType) {
  EXPECT_EQ(expression("(a) - 1"), "(- a 1)");
  EXPECT_EQ(expression("(size_t) - 1"), "(cast <size_t> (- 1))");
  EXPECT_EQ(expression("(a)(b)"), "(call a b)");
  EXPECT_EQ(expression("(a * b)"), "(* a b)");
  EXPECT_EQ(expression("(foo_t *)a"), "syntax error near \"foo_t\": no type is called \"foo_t\"");
  request_.is_type = [](std::string_view name) { return name == "foo_t" || name == "pid"; };
  EXPECT_EQ(expression("(foo_t *)a"), "(cast <pointer to foo_t> a)");
  EXPECT_EQ(expression("(foo_t)a"), "(cast <foo_t> a)");
  EXPECT_EQ(expression("(pid) - 1"), "(- pid 1)");  // D's variable hides the type
  EXPECT_EQ(expression("foo_t = 1, (foo_t) - 1"), "(, (= foo_t 1) (- foo_t 1))");
}

TEST_F(ParserTest, TypesDeclaredByTheProgram) {
  EXPECT_EQ(tree("typedef struct s *sp; BEGIN { x = (sp)0; y = (D`sp)1; sp2 = sizeof (sp); }"),
            "declaration\n"
            "  sp: pointer to typedef struct s\n"
            "clause\n"
            "  probe :::BEGIN\n"
            "  (= x (cast <sp> 0x0))\n"
            "  (= y (cast <sp> 1))\n"
            "  (= sp2 (sizeof <sp>))\n");
}

TEST_F(ParserTest, SizeofOffsetofXlate) {
  EXPECT_EQ(expression("sizeof (int) + 1"), "(+ (sizeof <int>) 1)");
  EXPECT_EQ(expression("sizeof (uint8_t)"), "(sizeof <uint8_t>)");
  EXPECT_EQ(expression("sizeof (x)"), "(sizeof x)");
  EXPECT_EQ(expression("sizeof (int *[4])"), "(sizeof <array 4 of pointer to int>)");
  EXPECT_EQ(expression("sizeof (*)"), "syntax error near \")\"");
  EXPECT_EQ(expression("offsetof(struct s, m)"), "(offsetof <struct s> m)");
  EXPECT_EQ(expression("offsetof(nosuch_t, m)"),
            "syntax error near \"nosuch_t\": no type is called \"nosuch_t\"");
  EXPECT_EQ(expression("xlate <struct s>(a + b)->c"), "(-> (xlate <struct s> (+ a b)) c)");
  EXPECT_EQ(expression("xlate <struct s *>(a)"), "(xlate <pointer to struct s> a)");
}

TEST_F(ParserTest, RangesCoverTheSource) {
  request_.source = *sources_.add("t.d", "  (a + bb) * f(c)  ", diag::SourceKind::kScript);
  const ExpressionPtr e = parse_expression(request_, sources_, diagnostics_);
  ASSERT_NE(e, nullptr);
  EXPECT_EQ(sources_.text(e->range), "(a + bb) * f(c)");
  const auto& product = e->as<Binary>();
  EXPECT_EQ(sources_.text(product.operator_range), "*");
  EXPECT_EQ(sources_.text(product.left->range), "(a + bb)");
  EXPECT_TRUE(product.left->parenthesized);
  EXPECT_EQ(sources_.text(product.right->range), "f(c)");
  EXPECT_EQ(product.depth, 3u);
}

// ------------------------------------------------------------------------------------ declarations

TEST_F(ParserTest, DeclaratorsReadFromTheNameOutwards) {
  EXPECT_EQ(declared("int x"), "x: int");
  EXPECT_EQ(declared("int *a[3]"), "a: array 3 of pointer to int");
  EXPECT_EQ(declared("int (*a)[3]"), "a: pointer to array 3 of int");
  EXPECT_EQ(declared("char *(*f)(int, char *s, ...)"),
            "f: pointer to function (int, s: pointer to char, ...) of pointer to char");
  EXPECT_EQ(declared("int *const *volatile p"), "p: volatile pointer to const pointer to int");
  EXPECT_EQ(declared("int a[2][3]"), "a: array 2 of array 3 of int");
  EXPECT_EQ(declared("int a[string, int *, struct s]"),
            "a: array [string, pointer to int, struct s] of int");
  EXPECT_EQ(declared("int a[...]"), "a: array [...] of int");
  EXPECT_EQ(declared("int a[]"), "a: array of int");
  EXPECT_EQ(declared("void f(void)"), "f: function (void) of void");
  EXPECT_EQ(declared("extern unsigned long long x"), "x: extern unsigned long long");
  EXPECT_EQ(declared("self uint64_t ts"), "ts: self uint64_t");
  EXPECT_EQ(declared("this string s"), "s: this string");
  EXPECT_EQ(declared("self x"), "x: self");
  EXPECT_EQ(declared("uint8_t uint8_t"), "uint8_t: uint8_t");
  EXPECT_EQ(declared("int x, y = 3"), "syntax error near \"=\"");
  EXPECT_EQ(declared("int 0abc"), "syntax error near \"0\"");
  EXPECT_EQ(declared("typedef nosuch_t x"),
            "syntax error near \"nosuch_t\": no type is called \"nosuch_t\"");
}

TEST_F(ParserTest, StructuresAndEnumerations) {
  EXPECT_EQ(declared("struct s { int a, *b; unsigned c:3, :4; struct { char d; } e; } x"),
            "x: struct s { a: int; b: pointer to int; c: unsigned : 3; unsigned : 4; e: struct { "
            "d: char; }; }");
  EXPECT_EQ(tree("enum e { A, B = 1 + 2, C };"), "declaration\n  enum e { A; B = (+ 1 2); C; }\n");
  EXPECT_EQ(tree("union u { int a; char b; };"), "declaration\n  union u { a: int; b: char; }\n");
  EXPECT_EQ(declared("struct s { } x"), "syntax error near \"}\"");
  EXPECT_EQ(declared("enum e { A, } x"), "syntax error near \"}\"");
  EXPECT_EQ(declared("struct s { int a } x"), "syntax error near \"}\"");
  EXPECT_EQ(declared("struct"), "syntax error near \";\"");
}

TEST_F(ParserTest, TypeNames) {
  EXPECT_EQ(type("unsigned char"), "unsigned char");
  EXPECT_EQ(type("const char *const"), "const pointer to const char");
  EXPECT_EQ(type("int (*)(void)"), "pointer to function (void) of int");
  EXPECT_EQ(type("int *[3]"), "array 3 of pointer to int");
  EXPECT_EQ(type("int x"), "syntax error near \"x\"");
  EXPECT_EQ(type("static int"), "syntax error near \"static\"");
}

TEST_F(ParserTest, InlinesTranslatorsProviders) {
  EXPECT_EQ(tree("inline int limit = 10 * 2; inline string f[int a] = \"x\";"),
            "inline\n  limit: int\n  (* 10 2)\n"
            "inline\n  f: array [a: int] of string\n  \"x\"\n");
  EXPECT_EQ(tree("translator out_t < struct in *p > { a = p->a; b = 1; };\n"
                 "typedef struct o { int a; } out_t;\n"
                 "translator out_t < struct in *p > { a = p->a; b = 1; };\n"
                 "translator struct o < int i > { };"),
            "declaration\n  out_t: typedef struct o { a: int; }\n"
            "translator out_t < pointer to struct in p >\n  a = (-> p a)\n  b = 1\n"
            "translator struct o < int i >\n"
            "t.d:1:12: error: syntax error near \"out_t\": no type is called \"out_t\" [D_SYNTAX]\n"
            "    1 | translator out_t < struct in *p > { a = p->a; b = 1; };\n"
            "      |            ^~~~~\n");
  EXPECT_EQ(tree("provider p { probe a(int, char *s) : (string); probe b__c(); };"),
            "provider p\n  probe a(int, s: pointer to char) : (string)\n  probe b__c()\n");
}

// ----------------------------------------------------------------------------------------- clauses

TEST_F(ParserTest, ClausesPredicatesAndBodies) {
  EXPECT_EQ(tree("BEGIN, tick-10ms, 12\n/ pid == $0 / { ; trace(1);; exit(0) }\nEND { }\n"),
            "clause\n  probe :::BEGIN\n  probe :::tick-10ms\n  probe #12\n  predicate (== pid "
            "\"t.d\")\n  (call trace 1)\n"
            "  (call exit 0x0)\n"
            "clause\n  probe :::END\n");
}

TEST_F(ParserTest, ASlashInAPredicateMayDivide) {
  EXPECT_EQ(tree("BEGIN /a / b == 2/ {}"),
            "clause\n  probe :::BEGIN\n  predicate (== (/ a b) 2)\n");
  EXPECT_EQ(tree("BEGIN /a / 2 / /* c */ { x = y / z; }"),
            "clause\n  probe :::BEGIN\n  predicate (/ a 2)\n  (= x (/ y z))\n");
}

TEST_F(ParserTest, WordsOutsideOfClauses) {
  EXPECT_EQ(tree("int*x; int* { }"),
            "declaration\n  x: pointer to int\n"
            "t.d:1:13: error: syntax error near \"{\" [D_SYNTAX]\n"
            "    1 | int*x; int* { }\n"
            "      |             ^\n");
  EXPECT_EQ(tree("size_t x;"), "declaration\n  x: size_t\n");
  request_.prefer_descriptions = true;
  EXPECT_EQ(tree("int* { } int x; size_t { }"),
            "clause\n  probe :::int*\ndeclaration\n  x: int\nclause\n  probe :::size_t\n");
}

TEST_F(ParserTest, ArgumentsOfTheCommandNeedNoBody) {
  EXPECT_EQ(tree("BEGIN", diag::SourceKind::kText), "clause\n  probe :::BEGIN\n  no body\n");
  EXPECT_EQ(tree("a:b , c", diag::SourceKind::kText),
            "clause\n  probe ::a:b\n  probe :::c\n  no body\n");
  EXPECT_EQ(tree("4-2", diag::SourceKind::kText),
            "clause\n  probe #4\n  no body\nclause\n  probe :::-2\n  no body\n");
  EXPECT_THAT(
      complaints("BEGIN"),
      ElementsAre("1: SYNTAX expected predicate and/or actions following probe description"));
  EXPECT_THAT(
      complaints("BEGIN /1/", diag::SourceKind::kText),
      ElementsAre("1: SYNTAX expected actions { } following probe description and predicate"));
}

TEST_F(ParserTest, OtherKindsOfDescription) {
  request_.kind = DescriptionKind::kFunction;
  EXPECT_EQ(tree("libc:malloc /arg0/ { }", diag::SourceKind::kText),
            "clause\n  probe :libc:malloc:\n  predicate arg0\n");
  EXPECT_THAT(
      complaints("4.56", diag::SourceKind::kText),
      ElementsAre("1: PDESC_INVAL probe identifier 4 not permitted when specifying functions"));
  EXPECT_THAT(
      complaints("a:b:c:d { x }", diag::SourceKind::kText),
      ElementsAre(
          "1: PDESC_INVAL invalid probe description \"a:b:c:d\": Overspecified probe description"));
  request_.kind = DescriptionKind::kId;
  EXPECT_EQ(tree("12", diag::SourceKind::kText), "clause\n  probe #12\n  no body\n");
  EXPECT_THAT(complaints("4294967296", diag::SourceKind::kText),
              ElementsAre("1: PDESC_INVAL identifier 4294967296 exceeds maximum probe id"));
}

TEST_F(ParserTest, MacrosInDescriptions) {
  macros_.variables = {{"target", 99}};
  macros_.arguments = {"t.d", "malloc"};
  EXPECT_EQ(tree("pid$target::$1:entry { }"), "clause\n  probe pid99::malloc:entry\n");
  EXPECT_THAT(complaints("pid$nosuch:::entry { }"),
              ElementsAre("1: PDESC_INVAL invalid probe description \"pid$nosuch:::entry\": "
                          "Undefined macro variable in "
                          "probe description"));
}

TEST_F(ParserTest, PragmasComeBeforeTheItemTheyStandIn) {
  EXPECT_EQ(tree("BEGIN {\n#pragma D option quiet\ntrace(1);\n}\n#pragma D option bufsize=1m\n"),
            "pragma option quiet\nclause\n  probe :::BEGIN\n  (call trace 1)\npragma option "
            "bufsize = \"1m\"\n");
}

TEST_F(ParserTest, ExpressionNumbersAreDense) {
  const ParseResult result = parse_program("inline int a = 1; BEGIN /b/ { c = d; f(1, 2); }");
  EXPECT_EQ(result.program->expression_count, 9u);
}

TEST_F(ParserTest, HeadersMayDefineFunctions) {
  EXPECT_EQ(tree("# 1 \"h.h\" 1\nstatic inline int f(int x)\n{ if (x) { return 1; } }\n# 2 "
                 "\"/dev/stdin\" 2\nint y;\n"),
            "declaration\n  f: function (x: int) of static int\ndeclaration\n  y: int\n");
  EXPECT_THAT(complaints("int f(int x) { return 1; }\n"),
              ElementsAre("1: SYNTAX syntax error near \"{\""));
}

// ----------------------------------------------------------------------------- programs as a whole

TEST_F(ParserTest, AnEmptyProgram) {
  EXPECT_THAT(complaints("/* nothing */\n"),
              ElementsAre("2: EMPTY empty D program translation unit"));
  EXPECT_THAT(complaints("#pragma D option quiet\n"),
              ElementsAre("2: EMPTY empty D program translation unit"));
  EXPECT_THAT(complaints("#pragma D option empty\n"), IsEmpty());
  request_.empty_ok = true;
  EXPECT_THAT(complaints(""), IsEmpty());
}

TEST_F(ParserTest, TheLastArgumentMustBeUsed) {
  macros_.arguments = {"t.d", "a", "b"};
  EXPECT_THAT(complaints("BEGIN { trace($$1) }"),
              ElementsAre("1: MACRO_UNUSED extraneous argument 'b' ($2 is not referenced)"));
  EXPECT_THAT(complaints("BEGIN { trace($$2) }"), IsEmpty());
  EXPECT_THAT(complaints("a:$2 { }"), IsEmpty());
  EXPECT_THAT(complaints("#pragma D option argref\nBEGIN { }"), IsEmpty());
  request_.unused_arguments_ok = true;
  const ParseResult result = parse_program("BEGIN { trace($$1) }");
  EXPECT_THAT(result.arguments_used, ElementsAre(false, true, false));
}

TEST_F(ParserTest, AllMistakesAreReportedInOrder) {
  EXPECT_THAT(
      complaints("BEGIN\n{\n\ttrace(1;\n\tx = 08;\n\tif (x) { y; z; }\n\tgood(2);\n\ty y;\n}\n"
                 "END { x = ; }\nint foo = 3;\nstruct s { int a } q;\nfoo { trace(1) }\na::::b { "
                 "}\nEND { ) }\n"),
      ElementsAre(
          "3: SYNTAX syntax error near \";\"", "4: INT_DIGIT constant 08 contains invalid digit 8",
          "5: SYNTAX syntax error near \"if\"", "7: SYNTAX syntax error near \"y\"",
          "9: SYNTAX syntax error near \";\"", "10: SYNTAX syntax error near \"=\"",
          "11: SYNTAX syntax error near \"}\"",
          "13: PDESC_INVAL invalid probe description \"a::::b\": Overspecified probe description",
          "14: SYNTAX extra ) in input stream"));
}

TEST_F(ParserTest, WhatIsRightBesideAMistakeIsKept) {
  const ParseResult result =
      parse_program("BEGIN { trace(1); x x; trace(2); } } int ; END { trace(3); }");
  EXPECT_EQ(print_tree(*result.program),
            "clause\n  probe :::BEGIN\n  (call trace 1)\n  (call trace 2)\ndeclaration\n  int\n"
            "clause\n  probe :::END\n  (call trace 3)\n");
  EXPECT_EQ(diagnostics_.error_count(), 2u);
}

TEST_F(ParserTest, UnbalancedBracketsAreNamed) {
  EXPECT_THAT(complaints("BEGIN\n/rand(/\n{ }"),
              ElementsAre("2: SYNTAX closing ) expected in predicate before /"));
  EXPECT_THAT(complaints("BEGIN\n/args[0/\n{ }"),
              ElementsAre("2: SYNTAX closing ] expected in predicate before /"));
  EXPECT_THAT(complaints("BEGIN { trace(a[0]]); }"),
              ElementsAre("1: SYNTAX extra ] in input stream"));
  EXPECT_THAT(complaints("BEGIN { trace(a)); }"), ElementsAre("1: SYNTAX extra ) in input stream"));
  EXPECT_THAT(complaints("BEGIN {\ntrace(1);\n"),
              ElementsAre("3: SYNTAX syntax error near end of input"));
  EXPECT_THAT(complaints("BEGIN { }\n}\n"), ElementsAre("2: SYNTAX syntax error near \"}\""));
}

TEST_F(ParserTest, HintsForTheHabitsOfOtherLanguages) {
  EXPECT_THAT(tree("BEGIN { for (i = 0; i < 3; i++) x; }"),
              testing::HasSubstr("hint: D has no loops"));
  EXPECT_THAT(tree("BEGIN { int x; }"),
              testing::HasSubstr("hint: declarations stand outside of clauses"));
  EXPECT_THAT(tree("int x = 3; BEGIN {}"), testing::HasSubstr("hint: a declaration has no value"));
}

// -------------------------------------------------------------------------------- hostile programs

std::string repeat(std::string_view text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

TEST_F(ParserTest, DeepNestingIsRefused) {
  const std::string deep = "nested too deeply: more than 256 levels";
  constexpr std::size_t kMany = 100000;
  EXPECT_EQ(expression(repeat("(", kMany) + "1" + repeat(")", kMany)), deep);
  EXPECT_EQ(expression(repeat("- ", kMany) + "1"), deep);
  EXPECT_EQ(expression(repeat("(int)", kMany) + "1"), deep);
  EXPECT_EQ(expression(repeat("a ? ", kMany)), deep);
  EXPECT_EQ(expression(repeat("a ? b : ", kMany) + "c"), deep);
  EXPECT_EQ(expression(repeat("a = ", kMany) + "1"), deep);
  EXPECT_EQ(expression(repeat("a[", kMany)), deep);
  EXPECT_EQ(expression(repeat("f(", kMany)), deep);
  EXPECT_EQ(expression(repeat("sizeof ", kMany) + "a"), deep);
  EXPECT_EQ(expression("xlate <struct s>" + repeat("(xlate <struct s>", kMany)), deep);
  EXPECT_EQ(declared("int " + repeat("(", kMany) + "x"), deep);
  EXPECT_EQ(declared(repeat("struct s { ", kMany)), deep);
  EXPECT_EQ(declared("int f" + repeat("(int f", kMany)), deep);
  EXPECT_EQ(declared("int a" + repeat("[int a", kMany)), deep);
  EXPECT_EQ(expression(repeat("(", 100) + "1" + repeat(")", 100)), "1");
}

TEST_F(ParserTest, LongChainsAreRefusedToo) {
  const std::string complex =
      "expression is too complex: more than 512 operations within each other";
  EXPECT_EQ(expression(repeat("1 + ", 100000) + "1"), complex);
  EXPECT_EQ(expression("a" + repeat("->b", 100000)), complex);
  EXPECT_EQ(expression("a" + repeat(", a", 100000)), complex);
  EXPECT_EQ(expression("a" + repeat("++", 100000)), complex);
  EXPECT_NE(expression(repeat("1 + ", 500) + "1"), complex);
}

TEST_F(ParserTest, OneDeepStatementDoesNotHideTheNext) {
  EXPECT_THAT(complaints("BEGIN {\nx = " + repeat("(", 1000) + ";\ny y;\n}"),
              ElementsAre("2: SYNTAX nested too deeply: more than 256 levels",
                          "3: SYNTAX syntax error near \"y\""));
}

TEST_F(ParserTest, MegabytesAreReadInOneGo) {
  const std::string clause =
      "syscall::read:entry\n/ pid == 12 /\n{\n\t@[execname, arg0] = quantize(arg1 / 2);\n}\n\n";
  const ParseResult result = parse_program(repeat(clause, 20000));
  EXPECT_EQ(result.program->items.size(), 20000u);
  EXPECT_FALSE(diagnostics_.has_errors());
  EXPECT_EQ(complaints(repeat("BEGIN { x x; }\n", 20000)).size(), diag::Diagnostics::kDefaultCap);
}

TEST_F(ParserTest, BytesThatAreNoText) {
  EXPECT_THAT(complaints("BEGIN { trace(\xff); }\n\xfe\nEND { }"),
              ElementsAre("1: SYNTAX syntax error near byte 0xff, which is not valid UTF-8",
                          "2: SYNTAX syntax error near byte 0xfe, which is not valid UTF-8"));
  EXPECT_THAT(complaints("/* \xff */ BEGIN { trace(\"\xff\"); }"), IsEmpty());
}

}  // namespace
}  // namespace trapline::dlang
