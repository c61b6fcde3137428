#include "diag/source.h"

#include <gtest/gtest.h>

#include <string>

#include "diag/utf8.h"

namespace trapline::diag {
namespace {

SourceId add(SourceManager& sources, std::string text, SourceKind kind = SourceKind::kScript) {
  const auto id = sources.add("file.d", std::move(text), kind);
  EXPECT_TRUE(id.has_value());
  return *id;
}

TEST(SourceManager, LinesAndColumnsCountFromOne) {
  SourceManager sources;
  const SourceId id = add(sources, "ab\ncd\n\nx");
  const auto at = [&](std::uint32_t offset) {
    const Position position = sources.position({id, offset});
    return std::pair(position.line, position.column);
  };
  EXPECT_EQ(at(0), std::pair(1u, 1u));
  EXPECT_EQ(at(2), std::pair(1u, 3u));  // the newline itself
  EXPECT_EQ(at(3), std::pair(2u, 1u));
  EXPECT_EQ(at(6), std::pair(3u, 1u));
  EXPECT_EQ(at(7), std::pair(4u, 1u));
  EXPECT_EQ(at(8), std::pair(4u, 2u));  // the end
  EXPECT_EQ(sources.position({id, 9}).line, 0u);
}

TEST(SourceManager, AColumnIsACharacter) {
  SourceManager sources;
  const SourceId id = add(sources, "\t\xc3\xa9\xe2\x82\xacx");  // tab, e acute, euro sign
  EXPECT_EQ(sources.position({id, 1}).column, 2u);
  EXPECT_EQ(sources.position({id, 3}).column, 3u);
  EXPECT_EQ(sources.position({id, 6}).column, 4u);
}

TEST(SourceManager, LineTextIsWithoutItsEnd) {
  SourceManager sources;
  const SourceId id = add(sources, "one\r\ntwo\nthree");
  EXPECT_EQ(sources.line_text({id, 1}), "one");
  EXPECT_EQ(sources.line_text({id, 8}), "two");
  EXPECT_EQ(sources.line_text({id, 9}), "three");
  EXPECT_EQ(sources.line_start({id, 11}), 9u);
}

TEST(SourceManager, SourcesAreApart) {
  SourceManager sources;
  const SourceId first = add(sources, "a\nb");
  const auto second = sources.add("other.d", "c", SourceKind::kText);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(sources.position({first, 2}).file, "file.d");
  EXPECT_EQ(sources.position({*second, 0}).file, "other.d");
  EXPECT_EQ(sources.kind(*second), SourceKind::kText);
  EXPECT_EQ(sources.text(Range{first, 2, 3}), "b");
  EXPECT_EQ(sources.text(Range{first, 2, 1}), "");
}

TEST(SourceManager, LineMarkersRenameWhatFollows) {
  SourceManager sources;
  //                               0         13  15          27
  const SourceId id = add(sources, "# 10 \"inc.h\"\nx\n# 3 \"\" 2 ab\ny\nz");
  sources.add_line_marker(id, 13, {.line = 10, .file = "inc.h", .flow = LineMarker::Flow::kEnter});
  sources.add_line_marker(id, 27, {.line = 3, .file = "", .flow = LineMarker::Flow::kLeave});
  const Position inside = sources.position({id, 13});
  EXPECT_EQ(inside.file, "inc.h");
  EXPECT_EQ(inside.line, 10u);
  EXPECT_TRUE(inside.renamed);
  EXPECT_EQ(sources.position({id, 15}).line, 11u);
  const auto includes = sources.included_from({id, 13});
  ASSERT_EQ(includes.size(), 1u);
  EXPECT_EQ(includes[0].file, "file.d");
  EXPECT_EQ(includes[0].line, 1u);
  const Position after = sources.position({id, 27});
  EXPECT_EQ(after.file, "file.d");
  EXPECT_EQ(after.line, 3u);
  EXPECT_FALSE(after.renamed);
  EXPECT_TRUE(sources.included_from({id, 27}).empty());
}

TEST(SourceManager, AMarkerWithoutFileKeepsIt) {
  SourceManager sources;
  const SourceId id = add(sources, "a\nb\nc\n");
  sources.add_line_marker(id, 2, {.line = 100, .file = "x.d"});
  sources.add_line_marker(id, 4, {.line = 200, .file = std::nullopt});
  EXPECT_EQ(sources.position({id, 4}).file, "x.d");
  EXPECT_EQ(sources.position({id, 4}).line, 200u);
}

TEST(SourceManager, ExpansionsCoverTheirMacro) {
  SourceManager sources;
  const SourceId id = add(sources, "x = $1 + $target;");
  sources.add_expansion({id, 4, 6}, "foo");
  sources.add_expansion({id, 9, 16}, "77");
  EXPECT_EQ(sources.expansion_at({id, 3}), nullptr);
  ASSERT_NE(sources.expansion_at({id, 5}), nullptr);
  EXPECT_EQ(sources.expansion_at({id, 5})->text, "foo");
  EXPECT_EQ(sources.expansion_at({id, 6}), nullptr);
  EXPECT_EQ(sources.expansion_at({id, 15})->text, "77");
}

TEST(Range, JoinSpansBoth) {
  EXPECT_EQ(join({0, 3, 5}, {0, 8, 9}), (Range{0, 3, 9}));
  EXPECT_EQ(join({0, 8, 9}, {0, 3, 5}), (Range{0, 3, 9}));
  EXPECT_EQ(join({}, {0, 3, 5}), (Range{0, 3, 5}));
  EXPECT_EQ(join({0, 3, 5}, {1, 0, 1}), (Range{0, 3, 5}));
}

TEST(Utf8, AcceptsWhatIsWellFormedOnly) {
  const auto decode = [](std::string_view text) { return decode_utf8(text, 0); };
  EXPECT_EQ(decode("a").code, 0x61u);
  EXPECT_EQ(decode("\xc3\xa9").code, 0xe9u);
  EXPECT_EQ(decode("\xe2\x82\xac").length, 3u);
  EXPECT_EQ(decode("\xf0\x9f\x98\x80").code, 0x1f600u);
  for (const std::string_view bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe2\x82", "\xc3("}) {
    EXPECT_FALSE(decode(bad).valid);
    EXPECT_EQ(decode(bad).length, 1u);
  }
}

}  // namespace
}  // namespace trapline::diag
