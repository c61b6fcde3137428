#include "dlang/lexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace trapline::dlang {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LexerTest : public testing::Test {
 protected:
  Lexer& lex(std::string text, LexerOptions options = {},
             diag::SourceKind kind = diag::SourceKind::kScript) {
    source_ = *sources_.add("t.d", std::move(text), kind);
    lexer_.emplace(source_, &macros_, options, sources_, diagnostics_);
    return *lexer_;
  }
  // The text of each token, up to the end.
  std::vector<std::string> words(std::string text) {
    lex(std::move(text));
    std::vector<std::string> result;
    for (Token token = lexer_->next(); token.kind != TokenKind::kEnd; token = lexer_->next()) {
      result.emplace_back(sources_.text(token.range));
      EXPECT_LT(result.size(), 10000u);
    }
    return result;
  }
  Token first(std::string text) { return lex(std::move(text)).next(); }
  // Tags of all that was reported.
  std::vector<std::string> tags() {
    std::vector<std::string> result;
    for (const diag::Diagnostic& diagnostic : diagnostics_.sorted())
      result.push_back(diagnostic.tag);
    return result;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> result;
    for (const diag::Diagnostic& diagnostic : diagnostics_.sorted())
      result.push_back(diagnostic.text);
    return result;
  }

  diag::SourceManager sources_;
  diag::Diagnostics diagnostics_;
  Macros macros_;
  diag::SourceId source_ = 0;
  std::optional<Lexer> lexer_;
};

TEST_F(LexerTest, OperatorsAreTheLongestThatFit) {
  EXPECT_THAT(words("a<<=b>>=c->d++ --^^^&&&||| ... == != <= >= += -= *= %= &= |= ^= ~ ! ? :"),
              ElementsAre("a", "<<=", "b", ">>=", "c", "->", "d", "++", "--", "^^", "^", "&&", "&",
                          "||", "|", "...", "==", "!=", "<=", ">=", "+=", "-=", "*=", "%=", "&=",
                          "|=", "^=", "~", "!", "?", ":"));
  EXPECT_THAT(tags(), IsEmpty());
}

TEST_F(LexerTest, KeywordsAndNames) {
  EXPECT_EQ(first("self").kind, TokenKind::kSelf);
  EXPECT_EQ(first("string").kind, TokenKind::kStringKeyword);
  EXPECT_EQ(first("xlate").kind, TokenKind::kXlate);
  EXPECT_EQ(first("auto").kind, TokenKind::kAuto);
  EXPECT_EQ(first("selfish").kind, TokenKind::kIdentifier);
  EXPECT_EQ(first("libc`malloc").text, "libc`malloc");
  EXPECT_EQ(first("8021q`x").kind, TokenKind::kIdentifier);
  EXPECT_EQ(first("@a_1[").text, "a_1");
  EXPECT_EQ(first("@[").text, "_");
}

TEST_F(LexerTest, MembersMayBeCalledLikeKeywords) {
  lex("p->string.int self");
  EXPECT_EQ(lexer_->next().kind, TokenKind::kIdentifier);
  EXPECT_EQ(lexer_->next().kind, TokenKind::kArrow);
  EXPECT_EQ(lexer_->next().kind, TokenKind::kIdentifier);
  EXPECT_EQ(lexer_->next().kind, TokenKind::kDot);
  EXPECT_EQ(lexer_->next().kind, TokenKind::kIdentifier);
  EXPECT_EQ(lexer_->next().kind, TokenKind::kSelf);
}

TEST_F(LexerTest, Integers) {
  const auto integer = [this](std::string text) {
    const Token token = first(std::move(text));
    EXPECT_EQ(token.kind, TokenKind::kInteger);
    return token.integer;
  };
  EXPECT_EQ(integer("0").value, 0u);
  EXPECT_EQ(integer("18446744073709551615").value, 18446744073709551615u);
  EXPECT_EQ(integer("0777").value, 0777u);
  EXPECT_EQ(integer("0xFFffFFffFFffFFff").value, ~std::uint64_t{0});
  EXPECT_TRUE(integer("10").decimal);
  EXPECT_FALSE(integer("0x10").decimal);
  EXPECT_FALSE(integer("010").decimal);
  EXPECT_TRUE(integer("1u").unsigned_suffix);
  EXPECT_EQ(integer("1ULL").long_suffixes, 2);
  EXPECT_EQ(integer("1l").long_suffixes, 1);
  EXPECT_FALSE(integer("1l").unsigned_suffix);
  EXPECT_THAT(tags(), IsEmpty());
}

TEST_F(LexerTest, IntegersThatAreNone) {
  EXPECT_EQ(first("18446744073709551616").kind, TokenKind::kError);
  EXPECT_EQ(first("0x1ffffffffffffffff").kind, TokenKind::kError);
  EXPECT_EQ(first("02000000000000000000000").kind, TokenKind::kError);
  EXPECT_EQ(first("0128").kind, TokenKind::kError);
  EXPECT_THAT(texts(), ElementsAre("constant 18446744073709551616 results in integer overflow",
                                   "constant 0x1ffffffffffffffff results in integer overflow",
                                   "constant 02000000000000000000000 results in integer overflow",
                                   "constant 0128 contains invalid digit 8"));
  EXPECT_THAT(tags(), ElementsAre("INT_OFLOW", "INT_OFLOW", "INT_OFLOW", "INT_DIGIT"));
}

TEST_F(LexerTest, ANumberEndsWhereItsDigitsDo) {
  EXPECT_THAT(words("123abc 0xg 1lll"), ElementsAre("123", "abc", "0", "xg", "1ll", "l"));
}

TEST_F(LexerTest, FloatingPointIsRefused) {
  for (const char* text : {"1.5", "1.", ".5", "1e5", "2E-3", "1f", "1.0e+10F"}) {
    EXPECT_EQ(first(text).kind, TokenKind::kError) << text;
    EXPECT_EQ(lexer_->next().kind, TokenKind::kEnd) << text;
  }
  EXPECT_THAT(tags(), testing::Each("SYNTAX"));
  EXPECT_EQ(texts().size(), 7u);
}

TEST_F(LexerTest, StringsResolveEscapes) {
  EXPECT_EQ(first(R"("a\tb\n\"\\\x41\101\e")").string, "a\tb\n\"\\AA\\e");
  EXPECT_EQ(first(R"("")").string, "");
  EXPECT_EQ(first(R"("ab\0cd")").string, "ab");  // D's strings end at the first NUL
  EXPECT_EQ(first("\"\xff\xc3\xa9\"").string, "\xff\xc3\xa9");
  EXPECT_THAT(tags(), IsEmpty());
}

TEST_F(LexerTest, StringsEndOnTheirLine) {
  EXPECT_THAT(words("\"ab\ncd"), ElementsAre("\"ab", "cd"));
  EXPECT_THAT(words("\"ab\\\n"), ElementsAre("\"ab\\"));
  EXPECT_THAT(words("\"ab"), ElementsAre("\"ab"));
  EXPECT_THAT(tags(), ElementsAre("STR_NL", "STR_NL", "SYNTAX"));
}

TEST_F(LexerTest, CharacterConstants) {
  EXPECT_EQ(first("'a'").integer.value, 0x61u);
  EXPECT_TRUE(first("'a'").integer.character);
  EXPECT_EQ(first("'ab'").integer.value, 0x6162u);
  EXPECT_EQ(first("'abcdefgh'").integer.value, 0x6162636465666768u);
  EXPECT_EQ(first(R"('\n')").integer.value, 10u);
  EXPECT_EQ(first(R"('\0')").integer.value, 0u);
  EXPECT_EQ(first(R"('\377')").integer.value, 255u);
  EXPECT_EQ(first(R"('\'')").integer.value, 0x5c27u);
  EXPECT_EQ(first(R"('"')").integer.value, 0x22u);
  EXPECT_THAT(tags(), IsEmpty());
  EXPECT_EQ(first("''").kind, TokenKind::kError);
  EXPECT_EQ(first("'abcdefghi'").kind, TokenKind::kError);
  EXPECT_EQ(first("'a\n'").kind, TokenKind::kError);
  EXPECT_EQ(first("'a").kind, TokenKind::kError);
  EXPECT_THAT(tags(), ElementsAre("CHR_NULL", "CHR_OFLOW", "CHR_NL", "SYNTAX"));
}

TEST_F(LexerTest, CommentsAreBlank) {
  EXPECT_THAT(words("a/* x * / \n ** */b /**/ c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(tags(), IsEmpty());
}

TEST_F(LexerTest, CommentsDoNotNest) {
  EXPECT_THAT(words("a /* b /* c */ d"), ElementsAre("a", "d"));
  EXPECT_THAT(texts(), ElementsAre("/* encountered inside a comment"));
}

TEST_F(LexerTest, ACommentMustEnd) {
  EXPECT_THAT(words("a /* b *"), ElementsAre("a", ""));
  EXPECT_THAT(texts(), ElementsAre("end-of-file encountered before matching */"));
}

TEST_F(LexerTest, ASlashEndsAPredicateByWhatFollows) {
  const auto ends = [this](std::string text) {
    const Token token = first(std::move(text));
    EXPECT_EQ(token.kind, TokenKind::kSlash);
    return token.ends_predicate;
  };
  EXPECT_TRUE(ends("/ {"));
  EXPECT_TRUE(ends("/\n\t{"));
  EXPECT_TRUE(ends("/ /* why */ {"));
  EXPECT_TRUE(ends("/;"));
  EXPECT_TRUE(ends("/ /"));
  EXPECT_TRUE(ends("/"));
  EXPECT_FALSE(ends("/ x"));
  EXPECT_FALSE(ends("/ /* half */ 2"));
  EXPECT_EQ(first("/= 2").kind, TokenKind::kSlashAssign);
}

TEST_F(LexerTest, StrayBytesAreNamed) {
  EXPECT_THAT(words("\xff"), ElementsAre("\xff"));
  EXPECT_THAT(words("\xc3\xa9"), ElementsAre("\xc3\xa9"));
  EXPECT_THAT(words(std::string("\0", 1)), ElementsAre(std::string("\0", 1)));
  EXPECT_THAT(words("\\"), ElementsAre("\\"));
  EXPECT_THAT(
      texts(),
      ElementsAre(
          "syntax error near byte 0xff, which is not valid UTF-8",
          "syntax error near \"\xc3\xa9\" (U+00E9): outside of strings and comments D is ASCII",
          "syntax error near control character 0x00", "syntax error near \"\\\""));
}

TEST_F(LexerTest, LinesMayBeContinued) {
  EXPECT_THAT(words("a \\\n b \\\r\n c"), ElementsAre("a", "b", "c"));
}

// ------------------------------------------------------------------------------------------ macros

TEST_F(LexerTest, ArgumentsAreWhatTheyLookLike) {
  macros_.arguments = {"t.d",       "42",         "-7", "0x1fu", "name",
                       "two words", "\"quoted\"", "",   "self",  "a\\tb"};
  EXPECT_EQ(first("$1").integer.value, 42u);
  EXPECT_EQ(first("$2").integer.value, 7u);
  EXPECT_TRUE(first("$2").integer.negative);
  EXPECT_EQ(first("$3").integer.value, 31u);
  EXPECT_TRUE(first("$3").integer.unsigned_suffix);
  EXPECT_EQ(first("$4").kind, TokenKind::kIdentifier);
  EXPECT_EQ(first("$4").text, "name");
  EXPECT_EQ(first("$5").string, "two words");
  EXPECT_EQ(first("$6").string, "quoted");
  EXPECT_EQ(first("$7").kind, TokenKind::kString);
  EXPECT_EQ(first("$8").kind, TokenKind::kSelf);
  EXPECT_EQ(first("$9").string, "a\tb");
  EXPECT_EQ(first("$0").string, "t.d");
  EXPECT_THAT(tags(), IsEmpty());
}

TEST_F(LexerTest, TwoDollarsMakeAString) {
  macros_.arguments = {"t.d", "42", "\"q\""};
  macros_.variables = {{"pid", 12}};
  EXPECT_EQ(first("$$1").string, "42");
  EXPECT_EQ(first("$$2").string, "\"q\"");
  EXPECT_EQ(first("$$pid").string, "12");
  EXPECT_EQ(first("$$pid").kind, TokenKind::kString);
}

TEST_F(LexerTest, VariablesAreIntegers) {
  macros_.variables = {{"target", 31411}, {"uid", -1}};
  EXPECT_EQ(first("$target").integer.value, 31411u);
  EXPECT_EQ(first("$uid").integer.value, 1u);
  EXPECT_TRUE(first("$uid").integer.negative);
}

TEST_F(LexerTest, UsesOfMacrosAreRecorded) {
  macros_.arguments = {"t.d", "a", "b", "c"};
  lex("x $2 $$2 y");
  while (lexer_->next().kind != TokenKind::kEnd) {
  }
  EXPECT_THAT(lexer_->arguments_used(), ElementsAre(false, false, true, false));
  ASSERT_NE(sources_.expansion_at({source_, 2}), nullptr);
  EXPECT_EQ(sources_.expansion_at({source_, 2})->text, "b");
}

TEST_F(LexerTest, MacrosThatCannotBe) {
  macros_.arguments = {"t.d", "99999999999999999999", "5x"};
  EXPECT_EQ(first("$3").kind, TokenKind::kError);
  EXPECT_EQ(first("$nosuch").kind, TokenKind::kError);
  EXPECT_EQ(first("$1").kind, TokenKind::kError);
  EXPECT_EQ(first("$2").kind, TokenKind::kError);
  EXPECT_EQ(first("$99999999999999999999").kind, TokenKind::kError);
  EXPECT_THAT(words("$-1"), ElementsAre("$", "-", "1"));
  EXPECT_THAT(tags(), ElementsAre("MACRO_UNDEF", "MACRO_UNDEF", "MACRO_OFLOW", "INT_DIGIT",
                                  "MACRO_UNDEF", "SYNTAX"));
  EXPECT_EQ(texts()[0], "macro argument $3 is not defined");
  EXPECT_EQ(texts()[1], "macro variable $nosuch is not defined");
}

TEST_F(LexerTest, MissingArgumentsMayBeDefaulted) {
  macros_.arguments = {"t.d"};
  lex("$1 $$1", {.default_arguments = true});
  const Token number = lexer_->next();
  EXPECT_EQ(number.kind, TokenKind::kInteger);
  EXPECT_EQ(number.integer.value, 0u);
  const Token text = lexer_->next();
  EXPECT_EQ(text.kind, TokenKind::kString);
  EXPECT_EQ(text.string, "");
}

// ------------------------------------------------------------------------------ outside of clauses

TEST_F(LexerTest, DescriptionsAreOneWord) {
  lex("BEGIN,pid$target:libstdc++.so.6:*[a-z]?:entry /* c */ syscall:::return/x/ 12 {");
  EXPECT_EQ(lexer_->next_outer().text, "BEGIN");
  EXPECT_EQ(lexer_->next_outer().kind, TokenKind::kComma);
  EXPECT_EQ(lexer_->next_outer().text, "pid$target:libstdc++.so.6:*[a-z]?:entry");
  EXPECT_EQ(lexer_->next_outer().text, "syscall:::return");
  const Token slash = lexer_->next_outer();
  EXPECT_EQ(slash.kind, TokenKind::kSlash);
  lexer_->rewind(slash);
  EXPECT_EQ(lexer_->next().kind, TokenKind::kSlash);
  EXPECT_EQ(lexer_->next().kind, TokenKind::kIdentifier);
  EXPECT_EQ(lexer_->next().kind, TokenKind::kSlash);
  EXPECT_EQ(lexer_->next_outer().integer.value, 12u);
  EXPECT_EQ(lexer_->next_outer().kind, TokenKind::kLeftBrace);
  EXPECT_EQ(lexer_->next_outer().kind, TokenKind::kEnd);
}

TEST_F(LexerTest, QuotedNamesAreOneWord) {
  lex(R"D(pid1::"a b, {x}\"::f(int)":entry{)D");
  EXPECT_EQ(lexer_->next_outer().text, R"D(pid1::"a b, {x}\"::f(int)":entry)D");
  EXPECT_EQ(lexer_->next_outer().kind, TokenKind::kLeftBrace);
  lex("pid1::\"open\n{");
  EXPECT_EQ(lexer_->next_outer().kind, TokenKind::kError);
  EXPECT_THAT(tags(), ElementsAre("STR_NL"));
}

// ----------------------------------------------------------------------------------- control lines

TEST_F(LexerTest, PragmasAreQueued) {
  lex("#!/usr/sbin/dtrace -s\n  # pragma D option quiet\n#pragma D option bufsize=4m\r\n#pragma "
      "ident \"x\"\n"
      "#pragma once\n#\n#ident \"y\"\nx");
  EXPECT_EQ(lexer_->next().text, "x");
  const auto pragmas = lexer_->take_pragmas();
  ASSERT_EQ(pragmas.size(), 2u);
  EXPECT_EQ(pragmas[0]->name, "quiet");
  EXPECT_FALSE(pragmas[0]->value.has_value());
  EXPECT_EQ(pragmas[1]->name, "bufsize");
  EXPECT_EQ(pragmas[1]->value, "4m");
  EXPECT_TRUE(lexer_->take_pragmas().empty());
  EXPECT_THAT(tags(), IsEmpty());
}

TEST_F(LexerTest, PragmasOfTheOtherKinds) {
  lex("#pragma D attributes Stable/Evolving/ISA provider p args\n#pragma D attributes "
      "Private/Private/Unknown x\n"
      "#pragma D binding \"1.6.2\" y\n#pragma D depends_on provider sched\n");
  EXPECT_EQ(lexer_->next().kind, TokenKind::kEnd);
  const auto pragmas = lexer_->take_pragmas();
  ASSERT_EQ(pragmas.size(), 4u);
  EXPECT_EQ(pragmas[0]->pragma, PragmaKind::kAttributes);
  EXPECT_THAT(pragmas[0]->arguments, ElementsAre("p", "args"));
  EXPECT_EQ(pragmas[1]->name, "x");
  EXPECT_EQ(pragmas[1]->value, "Private/Private/Unknown");
  EXPECT_EQ(pragmas[2]->pragma, PragmaKind::kBinding);
  EXPECT_EQ(pragmas[2]->value, "1.6.2");
  EXPECT_EQ(pragmas[3]->pragma, PragmaKind::kDependsOn);
  EXPECT_EQ(pragmas[3]->value, "sched");
}

TEST_F(LexerTest, ControlLinesThatAreWrong) {
  lex("#include <x>\n#pragma D nosuch\n#pragma D option a b\n#pragma D option\n#pragma D "
      "attributes Stable x\n"
      "#pragma D attributes x\n#pragma D binding 1.0 x\n#pragma D binding \"one\" x\n#pragma D "
      "depends_on library l\n"
      "#pragma D depends_on thing l\n#error no \"way\"\n#line x\n# 12 file\n#\"x\"\n#pragma D "
      "binding \"x\n"
      "#line 99999999999999999999\n#pragma D attributes Stable/Stable/ISA provider p nosuch\n");
  EXPECT_EQ(lexer_->next().kind, TokenKind::kEnd);
  EXPECT_THAT(tags(),
              ElementsAre("PRAGCTL_INVAL", "PRAGMA_INVAL", "PRAGMA_MALFORM", "PRAGMA_MALFORM",
                          "PRAGMA_INVAL", "PRAGMA_MALFORM", "PRAGMA_MALFORM", "PRAGMA_INVAL",
                          "PRAGMA_DEPEND", "PRAGMA_INVAL", "PRAGERR", "PRAGMA_MALFORM",
                          "PRAGMA_MALFORM", "STR_NL", "INT_OFLOW", "PRAGMA_INVAL"));
  EXPECT_EQ(texts()[10], "#error: no way ");
  EXPECT_TRUE(lexer_->take_pragmas().empty());
}

TEST_F(LexerTest, ALibraryMayDependOnAnother) {
  lex("#pragma D depends_on library l.d\n", {}, diag::SourceKind::kLibrary);
  lexer_->next();
  EXPECT_EQ(lexer_->take_pragmas().size(), 1u);
  EXPECT_THAT(tags(), IsEmpty());
}

TEST_F(LexerTest, AControlLineMustEnd) {
  lex("#pragma D option quiet");
  EXPECT_EQ(lexer_->next().kind, TokenKind::kError);
  EXPECT_EQ(lexer_->next().kind, TokenKind::kEnd);
  EXPECT_THAT(texts(), ElementsAre("end-of-file encountered before end of control line"));
}

TEST_F(LexerTest, AHashWithinALineIsStray) {
  EXPECT_THAT(words("a # b"), ElementsAre("a", "#", "b"));
  EXPECT_THAT(tags(), ElementsAre("SYNTAX"));
}

TEST_F(LexerTest, LineMarkersMovePlaces) {
  lex("# 100 \"inc.h\" 1\na\n# 7 \"/dev/stdin\" 2\nb\n#line 50\nc");
  const auto place = [this] {
    const diag::Position position = sources_.position(lexer_->next().range.start());
    return position.file + ":" + std::to_string(position.line);
  };
  EXPECT_EQ(place(), "inc.h:100");
  EXPECT_EQ(place(), "t.d:7");
  EXPECT_EQ(place(), "t.d:50");
}

TEST_F(LexerTest, OptionsForTheReaderActAtOnce) {
  lex("#pragma D option defaultargs\n#pragma D option argref\n#pragma D option empty\n#pragma D "
      "option pspec\nx");
  lexer_->next();
  EXPECT_TRUE(lexer_->options().default_arguments);
  EXPECT_TRUE(lexer_->options().unused_arguments_ok);
  EXPECT_TRUE(lexer_->options().empty_ok);
  EXPECT_TRUE(lexer_->options().prefer_descriptions);
}

}  // namespace
}  // namespace trapline::dlang
