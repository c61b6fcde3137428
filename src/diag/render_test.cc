#include "diag/render.h"

#include <gtest/gtest.h>

#include <string>

namespace trapline::diag {
namespace {

class RenderTest : public testing::Test {
 protected:
  SourceId add(std::string text, SourceKind kind = SourceKind::kScript) {
    return *sources_.add("prog.d", std::move(text), kind);
  }
  SourceManager sources_;
  Diagnostics diagnostics_;
};

TEST_F(RenderTest, ShowsThePlaceTheLineAndACaret) {
  const SourceId id = add("BEGIN\n{\n\ttrace(x y);\n}\n");
  diagnostics_.error("SYNTAX", {id, 17, 18}, "syntax error near \"y\"", "a comma?");
  EXPECT_EQ(render_all(sources_, diagnostics_),
            "prog.d:3:10: error: syntax error near \"y\" [D_SYNTAX]\n"
            "    3 |         trace(x y);\n"
            "      |                 ^\n"
            "  hint: a comma?\n");
}

TEST_F(RenderTest, UnderlinesARangeUpToTheEndOfItsLine) {
  const SourceId id = add("abc def\nghi");
  diagnostics_.warning("", {id, 4, 7}, "one");
  diagnostics_.error("T", {id, 5, 10}, "two");
  EXPECT_EQ(render_all(sources_, diagnostics_),
            "prog.d:1:5: warning: one\n"
            "    1 | abc def\n"
            "      |     ^~~\n"
            "prog.d:1:6: error: two [D_T]\n"
            "    1 | abc def\n"
            "      |      ^~\n");
}

TEST_F(RenderTest, CountsCharactersAndHidesControlBytes) {
  const SourceId id = add("\xc3\xa9\x1b\xff x");
  diagnostics_.error("T", {id, 5, 6}, "here");
  EXPECT_EQ(render_all(sources_, diagnostics_),
            "prog.d:1:5: error: here [D_T]\n"
            "    1 | \xc3\xa9?? x\n"
            "      |     ^\n");
}

TEST_F(RenderTest, CutsALongLine) {
  const SourceId id = add(std::string(500, 'a') + "X" + std::string(500, 'b'));
  diagnostics_.error("T", {id, 500, 501}, "here");
  const std::string text = render_all(sources_, diagnostics_);
  EXPECT_NE(text.find("    1 | ..." + std::string(80, 'a') + "X" + std::string(79, 'b') + "...\n"),
            std::string::npos);
  EXPECT_NE(text.find("      | " + std::string(83, ' ') + "^\n"), std::string::npos);
}

TEST_F(RenderTest, ExplainsMacrosIncludesAndNotes) {
  const SourceId id = add("# 7 \"inc.h\" 1\nx = $1;\n");
  sources_.add_line_marker(id, 14, {.line = 7, .file = "inc.h", .flow = LineMarker::Flow::kEnter});
  sources_.add_expansion({id, 18, 20}, "4 2");
  diagnostics_.error("T", {id, 18, 20}, "bad").notes.push_back({{id, 14, 15}, "declared here"});
  EXPECT_EQ(render_all(sources_, diagnostics_),
            "inc.h:7:5: error: bad [D_T]\n"
            "    7 | x = $1;\n"
            "      |     ^~\n"
            "  included from prog.d:1\n"
            "  $1 is \"4 2\"\n"
            "  inc.h:7:1: note: declared here\n"
            "    7 | x = $1;\n"
            "      | ^\n");
}

TEST_F(RenderTest, WithoutAPlaceThereIsNoExcerpt) {
  diagnostics_.error("EMPTY", {}, "empty D program translation unit");
  EXPECT_EQ(render_all(sources_, diagnostics_),
            "error: empty D program translation unit [D_EMPTY]\n");
}

TEST_F(RenderTest, ClassicFormOfAScript) {
  const SourceId id = add("BEGIN\n{ x y }\n");
  const Diagnostic& diagnostic =
      diagnostics_.error("SYNTAX", {id, 10, 11}, "syntax error near \"y\"");
  EXPECT_EQ(classic_text(sources_, diagnostic, Tags::kShow),
            "[D_SYNTAX] line 2: syntax error near \"y\"");
  EXPECT_EQ(classic_text(sources_, diagnostic, Tags::kHide), "line 2: syntax error near \"y\"");
  EXPECT_EQ(
      render_classic(sources_, diagnostics_, "dtrace", SourceKind::kScript, "prog.d", Tags::kShow,
                     Excerpt::kOmit),
      "dtrace: failed to compile script prog.d: [D_SYNTAX] line 2: syntax error near \"y\"\n");
}

TEST_F(RenderTest, ClassicFormOfAnArgument) {
  const SourceId id = add("BEGIN { x }", SourceKind::kText);
  Diagnostic& diagnostic = diagnostics_.error("IDENT_UNDEF", {id, 8, 9}, "failed to resolve x");
  diagnostic.region = "action list";
  EXPECT_EQ(render_classic(sources_, diagnostics_, "dtrace", SourceKind::kText, "BEGIN { x }",
                           Tags::kShow, Excerpt::kShow),
            "dtrace: invalid probe specifier BEGIN { x }: [D_IDENT_UNDEF] in action list: failed "
            "to resolve x\n"
            "    1 | BEGIN { x }\n"
            "      |         ^\n");
}

TEST_F(RenderTest, ClassicFormNamesIncludedFilesAndLibraries) {
  const SourceId script = add("a\nb\n");
  sources_.add_line_marker(script, 2, {.line = 9, .file = "inc.d"});
  const SourceId library = *sources_.add("lib.d", "x", SourceKind::kLibrary);
  Diagnostic diagnostic = diagnostics_.error("T", {script, 2, 3}, "bad");
  EXPECT_EQ(classic_text(sources_, diagnostic, Tags::kHide), "\"inc.d\", line 9: bad");
  diagnostic.range = {library, 0, 1};
  EXPECT_EQ(classic_text(sources_, diagnostic, Tags::kHide), "\"lib.d\", line 1: bad");
}

// Programs that read dtrace's answer see one line of its kind, whatever else is wrong.
TEST_F(RenderTest, OnlyTheFirstErrorIsToldTheClassicWay) {
  const SourceId id = add("aa\nbb\n");
  diagnostics_.error("TWO", {id, 3, 4}, "second");
  diagnostics_.error("ONE", {id, 0, 1}, "first");
  EXPECT_EQ(render_classic(sources_, diagnostics_, "dtrace", SourceKind::kScript, "prog.d",
                           Tags::kHide, Excerpt::kOmit),
            "dtrace: failed to compile script prog.d: line 1: first\n"
            "prog.d:2:1: error: second [D_TWO]\n");
}

TEST(Diagnostics, SortsByPlaceAndKeepsTheOrderWithinOne) {
  Diagnostics diagnostics;
  diagnostics.error("A", {1, 0, 1}, "third");
  diagnostics.error("B", {}, "fourth");
  diagnostics.error("C", {0, 5, 6}, "first");
  diagnostics.error("D", {0, 5, 9}, "second");
  std::string order;
  for (const Diagnostic& diagnostic : diagnostics.sorted()) order += diagnostic.tag;
  EXPECT_EQ(order, "CDAB");
}

TEST(Diagnostics, DropsRepetitions) {
  Diagnostics diagnostics;
  diagnostics.error("A", {0, 1, 2}, "same");
  diagnostics.error("A", {0, 1, 2}, "same");
  diagnostics.error("A", {0, 1, 2}, "other");
  EXPECT_EQ(diagnostics.error_count(), 2u);
  EXPECT_EQ(diagnostics.sorted().size(), 2u);
}

TEST(Diagnostics, CountsWhatIsOverTheCap) {
  SourceManager sources;
  const SourceId id = *sources.add("p.d", "x", SourceKind::kScript);
  Diagnostics diagnostics(2);
  diagnostics.warning("", {id, 0, 1}, "no error");
  EXPECT_FALSE(diagnostics.has_errors());
  for (int i = 0; i < 4; ++i) diagnostics.error("T", {id, 0, 1}, "number " + std::to_string(i));
  EXPECT_TRUE(diagnostics.full());
  EXPECT_EQ(diagnostics.error_count(), 4u);
  EXPECT_EQ(diagnostics.dropped(), 3u);
  EXPECT_TRUE(render_all(sources, diagnostics).ends_with("\n3 more errors\n"));
}

}  // namespace
}  // namespace trapline::diag
