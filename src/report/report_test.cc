#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "consume/statistics.h"
#include "report/format.h"
#include "report/json_output.h"
#include "report/json_text.h"
#include "report/record_interpreter.h"
#include "report/text.h"
#include "report/text_output.h"

namespace trapline::report {
namespace {

using plan::Action;
using plan::ActionKind;
using plan::FormatItem;
using plan::ValueKind;
using plan::ValueType;

constexpr std::int64_t kMaximum = std::numeric_limits<std::int64_t>::max();

ValueType integer(std::uint32_t size = 8, bool is_signed = true) {
  return {ValueKind::kInteger, is_signed, size};
}
ValueType string(std::uint32_t size = 256) { return {ValueKind::kString, false, size}; }

FormatItem literal(std::string text) {
  FormatItem item;
  item.text = std::move(text);
  return item;
}
FormatItem conversion(char which, std::uint32_t value, std::string flags = "", int width = -1,
                      int precision = -1) {
  FormatItem item;
  item.conversion = which;
  item.value = value;
  item.flags = std::move(flags);
  item.width = width;
  item.precision = precision;
  return item;
}
FormatItem aggregate(char which, std::uint32_t value = 0, int width = -1) {
  FormatItem item = conversion(which, value, "", width);
  item.is_aggregation = true;
  return item;
}

// A program of one clause, its records, and what they print.
class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    program.clauses.resize(1);
    program.clauses[0].has_record = true;
    probes.push_back({1, "dtrace", "", "", "BEGIN"});
    probes.push_back({77, "pid9", "libc.so.6", "malloc", "entry"});
    probes.push_back({78, "pid9", "libc.so.6", "malloc", "return"});
    options.quiet = true;
  }

  std::uint32_t add_bytes(ValueType type, const void* data, std::size_t size) {
    auto& clause = program.clauses[0];
    clause.fields.push_back({static_cast<std::uint32_t>(payload.size()), type});
    const auto* bytes = static_cast<const std::byte*>(data);
    payload.insert(payload.end(), bytes, bytes + size);
    payload.resize(clause.fields.back().offset + (type.size + 7) / 8 * 8);
    return static_cast<std::uint32_t>(clause.fields.size() - 1);
  }
  std::uint32_t add(ValueType type, std::int64_t value) {
    return add_bytes(type, &value, type.size);
  }
  std::uint32_t add(ValueType type, std::string_view text) {
    return add_bytes(type, text.data(), text.size());
  }
  void act(ActionKind kind, std::vector<std::uint32_t> fields = {},
           std::vector<std::uint32_t> aggregations = {}) {
    Action action;
    action.kind = kind;
    action.fields = std::move(fields);
    action.aggregations = std::move(aggregations);
    program.clauses[0].actions.push_back(action);
  }
  void format(ActionKind kind, std::vector<FormatItem> items,
              std::vector<std::uint32_t> aggregations = {}) {
    act(kind, {}, std::move(aggregations));
    program.clauses[0].actions.back().has_format = true;
    program.clauses[0].actions.back().format = std::move(items);
  }

  std::uint32_t aggregation(plan::AggregationKind kind, std::vector<ValueType> keys = {},
                            std::vector<std::int64_t> parameters = {}, std::uint32_t bins = 127) {
    plan::Aggregation added;
    added.name = std::string(1, static_cast<char>('a' + program.aggregations.size()));
    added.kind = kind;
    added.keys = std::move(keys);
    added.bins = bins;
    std::copy(parameters.begin(), parameters.end(), added.parameters);
    program.aggregations.push_back(added);
    return static_cast<std::uint32_t>(program.aggregations.size() - 1);
  }
  // After the last aggregation().
  consume::AggregationStore& store() {
    if (!store_) store_.emplace(program);
    return *store_;
  }
  void update(std::uint32_t index, std::int64_t value, std::int64_t weight = 1,
              std::vector<consume::Value> key = {}) {
    ASSERT_TRUE(store().update(index, consume::encode_key(key), value, weight));
  }
  static consume::Value key(std::int64_t value, ValueType type = integer()) {
    return {type, static_cast<std::uint64_t>(value), ""};
  }
  static consume::Value key(std::string text) { return {string(), 0, std::move(text)}; }

  consume::Record record(std::uint32_t probe = 0) {
    consume::Record made;
    made.kind = consume::kDataRecord;
    made.probe = probe;
    made.cpu = 2;
    made.tid = 40;
    made.payload = payload;
    return made;
  }
  std::string run(std::uint32_t probe = 0) {
    if (!text_) text_.emplace(program, out, err, options);
    return run_in(*text_, probe);
  }
  std::string run_in(Output& output, std::uint32_t probe = 0) {
    RecordInterpreter interpreter(program, probes, store(), output);
    const auto outcome = interpreter.run(record(probe));
    EXPECT_TRUE(outcome);
    if (outcome) exit_status = outcome->exit_status;
    return out.take();
  }
  std::string finish() {
    if (!text_) text_.emplace(program, out, err, options);
    EXPECT_TRUE(text_->finish(store()));
    return out.take();
  }
  std::string json(std::uint32_t probe = 0) {
    JsonOutput output(program, out, options);
    return run_in(output, probe);
  }

  // One item over the fields added so far.
  std::string show(FormatItem item) {
    program.clauses[0].actions.clear();
    format(ActionKind::kPrintf, {std::move(item)});
    return run();
  }

  plan::Program program;
  std::vector<plan::ProbeName> probes;
  std::vector<std::byte> payload;
  PrintOptions options;
  StringSink out;
  StringSink err;
  std::optional<TextOutput> text_;
  std::optional<consume::AggregationStore> store_;
  std::optional<std::int32_t> exit_status;
};

// ------------------------------------------------------------------------------------------------------------
// firings

TEST_F(ReportTest, HeadingOncePrefixAndTrace) {
  options.quiet = false;
  act(ActionKind::kTrace, {add(integer(4), -1)});
  EXPECT_EQ(run(),
            "CPU     ID                    FUNCTION:NAME\n"
            "  2      1                           :BEGIN          -1\n");
  EXPECT_EQ(run(1), "  2     77                     malloc:entry          -1\n");
}

TEST_F(ReportTest, TestingHasNoColumns) {
  options.quiet = false;
  options.testing = true;
  EXPECT_EQ(run(1), "                   FUNCTION:NAME\n                    malloc:entry \n");
}

TEST_F(ReportTest, TraceBySizeAndSign) {
  for (const std::uint32_t size : {8u, 4u, 2u, 1u}) {
    act(ActionKind::kTrace, {add(integer(size), -1)});
    act(ActionKind::kTrace, {add(integer(size, false), -1)});
  }
  act(ActionKind::kTrace, {add(string(), "abc")});
  EXPECT_EQ(run(), "-118446744073709551615-14294967295-165535-1255abc");
  options.quiet = false;
  options.testing = true;
  text_.reset();
  EXPECT_EQ(run(),
            "                   FUNCTION:NAME\n                          :BEGIN "
            "                  -1 18446744073709551615         -1 4294967295    -1 65535  -1 255"
            "  abc                              \n");
}

TEST_F(ReportTest, TraceOfBytesIsADump) {
  act(ActionKind::kTrace,
      {add({ValueKind::kBytes, false, 18}, std::string_view("0123456789abcdef\0\x7f", 18))});
  EXPECT_EQ(run(),
            "\n"
            "             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef\n"
            "         0: 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n"
            "        10: 00 7f                                            ..\n");
}

TEST_F(ReportTest, RawBytesDumpsEverything) {
  options.rawbytes = true;
  act(ActionKind::kTrace, {add(integer(2), 0x4241)});
  EXPECT_EQ(run(),
            "\n"
            "             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef\n"
            "         0: 41 42                                            AB\n");
}

TEST_F(ReportTest, FlowIndentation) {
  options.flowindent = true;
  const auto line = [](std::string text) {
    return "  2 " + text + std::string(41 - text.size(), ' ') + " \n";
  };
  options.quiet = false;
  EXPECT_EQ(run(1), "CPU FUNCTION                                 \n" + line(" -> malloc"));
  EXPECT_EQ(run(0), line("  | :BEGIN"));
  EXPECT_EQ(run(2), line(" <- malloc"));
}

TEST_F(ReportTest, ExitStatusIsHandedOn) {
  act(ActionKind::kExit, {add(integer(4), -3)});
  EXPECT_EQ(run(), "");
  EXPECT_EQ(exit_status, -3);
}

TEST_F(ReportTest, DamagedRecordsAreReportedNotTrusted) {
  EXPECT_EQ(run(99), "");
  EXPECT_EQ(err.take(), "dtrace: 1 drop (trace buffer damaged by the process)\n");
  payload.clear();
  program.clauses[0].fields = {{4000, string()}, {16, integer()}};
  act(ActionKind::kTrace, {0});
  act(ActionKind::kTrace, {1});
  act(ActionKind::kTrace, {55});
  text_.reset();
  EXPECT_EQ(run(), "00");
}

// -------------------------------------------------------------------------------------------------------------
// printf

TEST_F(ReportTest, PrintfIntegers) {
  const auto minus = add(integer(4), -2);
  const auto big = add(integer(8, false), -1);
  const auto byte = add(integer(1, false), 200);
  EXPECT_EQ(show(conversion('d', minus)), "-2");
  EXPECT_EQ(show(conversion('i', byte)), "200");
  EXPECT_EQ(show(conversion('d', big)), "18446744073709551615") << "unsigned types print unsigned";
  EXPECT_EQ(show(conversion('u', minus)), "4294967294");
  EXPECT_EQ(show(conversion('x', minus)), "fffffffe");
  EXPECT_EQ(show(conversion('X', byte, "#")), "0XC8");
  EXPECT_EQ(show(conversion('o', byte)), "310");
  EXPECT_EQ(show(conversion('p', big)), "ffffffffffffffff");
  EXPECT_EQ(show(conversion('p', byte, "?")), "              c8");
  EXPECT_EQ(show(conversion('d', minus, "0", 6)), "-00002");
  EXPECT_EQ(show(conversion('d', minus, "-", 6)), "-2    ");
  EXPECT_EQ(show(conversion('d', minus, "-0", 6)), "-00002") << "the later flag wins";
  EXPECT_EQ(show(conversion('d', minus, "0-", 6)), "-2    ");
  EXPECT_EQ(show(conversion('d', byte, "+")), "200") << "unsigned: + says nothing";
  EXPECT_EQ(show(conversion('d', minus, "", 8, 4)), "   -0002");
  EXPECT_EQ(show(conversion('d', minus, "", -1, 0)), "-2");
  EXPECT_EQ(show(conversion('d', 99)), "0") << "a field that does not exist";
}

TEST_F(ReportTest, PrintfDynamicWidthAndPrecision) {
  const auto value = add(integer(), 7);
  const auto width = add(integer(4), -5);
  const auto precision = add(integer(4), 2);
  const auto huge = add(integer(), kMaximum);
  FormatItem item = conversion('d', value);
  item.width = -2;
  item.width_field = width;
  item.precision = -2;
  item.precision_field = precision;
  EXPECT_EQ(show(item), "07   ");
  item.width_field = huge;
  EXPECT_EQ(show(item).size(), static_cast<std::size_t>(kMaxRecordedWidth))
      << "recorded widths are bounded";
  EXPECT_EQ(show(conversion('d', value, "", 10000000)).size(), 10000000u);
}

TEST_F(ReportTest, PrintfStringsAndCharacters) {
  const auto text = add(string(16), std::string_view("a\tb\"\\\x01\xff", 7));
  const auto letter = add(integer(1), 'A');
  const auto nul = add(integer(4), 0);
  EXPECT_EQ(show(conversion('s', text, "-", 10)), "a\tb\"\\\x01\xff   ");
  EXPECT_EQ(show(conversion('s', text, "", 5, 2)), "   a\t");
  EXPECT_EQ(show(conversion('S', text)), "a\\tb\\\"\\\\\\001\\377\\0");
  EXPECT_EQ(show(conversion('c', letter, "", 3)), "  A");
  EXPECT_EQ(show(conversion('c', nul)), std::string(1, '\0'));
  EXPECT_EQ(show(conversion('C', nul)), "\\0");
  EXPECT_EQ(show(conversion('C', letter)), "A");
  EXPECT_EQ(show(conversion('%', 0)), "%");
  const std::string longer(1000, 'x');
  EXPECT_EQ(show(literal(longer)), longer);
}

TEST_F(ReportTest, PrintfTimesAndAddresses) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const auto time = add(integer(8, false), 123787200LL * 1'000'000'000);
  EXPECT_EQ(show(conversion('Y', time)), "1973 Dec  3 17:20:00");
  EXPECT_EQ(show(conversion('T', time)), "Mon, 03 Dec 1973 17:20:00 UTC");
  EXPECT_EQ(show(conversion('a', time)), "0x1b7c7cd73bd8000");
  options.symbol_name = [](std::uint64_t) { return std::string("libc.so.6`malloc+0x4"); };
  text_.reset();
  EXPECT_EQ(show(conversion('A', time, "-", 22)), "libc.so.6`malloc+0x4  ");
}

TEST_F(ReportTest, PrintfFloats) {
  const double value = 1.5;
  const float narrow = -2.25F;
  const auto wide_field = add_bytes(integer(8), &value, 8);
  const auto narrow_field = add_bytes(integer(4), &narrow, 4);
  EXPECT_EQ(show(conversion('f', wide_field, "", 8, 2)), "    1.50");
  EXPECT_EQ(show(conversion('g', narrow_field)), "-2.25");
}

// -------------------------------------------------------------------------------------------------------
// aggregations

TEST_F(ReportTest, EndPrintsABlankLineEvenWithoutAggregations) { EXPECT_EQ(finish(), "\n"); }

TEST_F(ReportTest, EndPrintsWhatWasNotPrintedSorted) {
  const auto a = aggregation(plan::AggregationKind::kSum, {string()});
  const auto b = aggregation(plan::AggregationKind::kCount);
  const auto c = aggregation(plan::AggregationKind::kCount);
  update(a, 2, 1, {key("two")});
  update(a, -1, 1, {key("minus")});
  update(b, 1);
  update(c, 1);
  act(ActionKind::kPrinta, {}, {c});
  EXPECT_EQ(run(), "\n                1\n");
  EXPECT_EQ(finish(),
            "\n"
            "  minus                                                            -1\n"
            "  two                                                               2\n"
            "                1\n");
}

TEST_F(ReportTest, ReversedOrderTurnsTheAggregationsRoundToo) {
  const auto a = aggregation(plan::AggregationKind::kCount);
  const auto b = aggregation(plan::AggregationKind::kSum);
  update(a, 1);
  update(b, 5);
  options.sort.reversed = true;
  EXPECT_EQ(finish(), "\n                5\n                1\n");
}

TEST_F(ReportTest, AnEmptyPrintaDoesNotCountAsPrinted) {
  const auto a = aggregation(plan::AggregationKind::kCount, {integer()});
  act(ActionKind::kPrinta, {}, {a});
  EXPECT_EQ(run(), "\n");
  update(a, 1, 1, {key(3)});
  EXPECT_EQ(finish(), "\n                3                1\n");
}

TEST_F(ReportTest, KeysBySize) {
  const auto a =
      aggregation(plan::AggregationKind::kSum,
                  {integer(1), integer(2), integer(4), integer(8), integer(8, false), string()});
  update(a, 9, 1,
         {key(-2, integer(1)), key(-2, integer(2)), key(-2, integer(4)), key(-2),
          key(-1, integer(8, false)), key("k")});
  EXPECT_EQ(finish(),
            "\n 254 65534       -2               -2 18446744073709551615  k"
            "                                                                 9\n");
}

TEST_F(ReportTest, KeysThatAreNotPrintableAreDumped) {
  const auto a = aggregation(plan::AggregationKind::kCount, {string(4)});
  update(a, 1, 1, {{string(4), 0, ""}});
  EXPECT_EQ(finish(),
            "\n\n"
            "             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef\n"
            "         0: 00 00 00 00                                      ....\n"
            "                1\n");
}

TEST_F(ReportTest, AverageDeviationMinimumMaximum) {
  const auto avg = aggregation(plan::AggregationKind::kAvg);
  const auto dev = aggregation(plan::AggregationKind::kStddev);
  const auto low = aggregation(plan::AggregationKind::kMin);
  const auto high = aggregation(plan::AggregationKind::kMax);
  for (std::int64_t i = 0; i < 10; ++i) {
    for (const auto index : {avg, dev, low, high}) update(index, 5000000000 + i * 100);
  }
  EXPECT_EQ(finish(),
            "\n       5000000450\n              287\n       5000000000\n       5000000900\n");
}

TEST_F(ReportTest, ClearedMinimumAndMaximum) {
  const auto low = aggregation(plan::AggregationKind::kMin);
  const auto high = aggregation(plan::AggregationKind::kMax);
  update(low, 5);
  update(high, 5);
  act(ActionKind::kClear, {}, {low});
  act(ActionKind::kClear, {}, {high});
  run();
  EXPECT_EQ(finish(), "\n 9223372036854775807\n -9223372036854775808\n");
}

TEST_F(ReportTest, NormalizeDenormalizeTruncate) {
  const auto a = aggregation(plan::AggregationKind::kSum, {integer(4)});
  for (std::int64_t i = 0; i < 5; ++i) update(a, -100 * i, 1, {key(i, integer(4))});
  act(ActionKind::kNormalize, {add(integer(4), 3)}, {a});
  act(ActionKind::kTruncate, {add(integer(4), -2)}, {a});
  act(ActionKind::kPrinta, {}, {a});
  act(ActionKind::kDenormalize, {}, {a});
  act(ActionKind::kPrinta, {}, {a});
  act(ActionKind::kTruncate, {}, {a});
  act(ActionKind::kPrinta, {}, {a});
  EXPECT_EQ(run(),
            "\n        4             -133\n        3             -100\n"
            "\n        4             -400\n        3             -300\n"
            "\n");
}

TEST_F(ReportTest, PrintaWithFormats) {
  const auto a = aggregation(plan::AggregationKind::kSum, {integer(4), string()});
  const auto b = aggregation(plan::AggregationKind::kCount, {integer(4), string()});
  update(a, -5, 1, {key(1, integer(4)), key("x")});
  update(b, 1, 1, {key(1, integer(4)), key("x")});
  update(b, 1, 1, {key(2, integer(4)), key("y")});
  const std::vector<FormatItem> items{
      conversion('d', 0, "", 4), literal(" "), conversion('s', 1, "-", 3), literal("|"),
      aggregate('d', 0, 5),      literal(" "), aggregate('x', 1),          literal("\n")};
  format(ActionKind::kPrinta, items, {a, b});
  EXPECT_EQ(run(), "   1 x  |   -5 1\n   2 y  |    0 1\n");
  program.clauses[0].actions.clear();
  format(ActionKind::kPrinta, items, {a});
  EXPECT_EQ(run(), "   1 x  |   -5 fffffffffffffffb\n") << "the last aggregation again";
  EXPECT_EQ(finish(), "\n") << "both were printed";
}

TEST_F(ReportTest, PrintaShowsTimes) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const auto a = aggregation(plan::AggregationKind::kMin);
  update(a, 1075064400LL * 1'000'000'000);
  format(ActionKind::kPrinta, {aggregate('Y'), literal("|"), aggregate('T')}, {a});
  EXPECT_EQ(run(), "2004 Jan 25 21:00:00|Sun, 25 Jan 2004 21:00:00 UTC");
}

TEST_F(ReportTest, PrintaJoinsWithoutFormat) {
  const auto a = aggregation(plan::AggregationKind::kMin, {integer(4)});
  const auto b = aggregation(plan::AggregationKind::kSum, {integer(4)});
  update(a, 7, 1, {key(1, integer(4))});
  update(b, 3, 1, {key(2, integer(4))});
  act(ActionKind::kPrinta, {}, {a, b});
  EXPECT_EQ(run(),
            "\n        2                0                3\n"
            "        1                7                0\n");
}

// ---------------------------------------------------------------------------------------------------------
// histograms

const char kHeading[] = "           value  ------------- Distribution ------------- count    \n";

TEST_F(ReportTest, QuantizePositive) {
  const auto a = aggregation(plan::AggregationKind::kQuantize);
  for (std::int64_t i = 0; i < 1000; i += 100) update(a, i);
  EXPECT_EQ(finish(), std::string("\n\n") + kHeading +
                          "              -1 |                                         0        \n"
                          "               0 |@@@@                                     1        \n"
                          "               1 |                                         0        \n"
                          "               2 |                                         0        \n"
                          "               4 |                                         0        \n"
                          "               8 |                                         0        \n"
                          "              16 |                                         0        \n"
                          "              32 |                                         0        \n"
                          "              64 |@@@@                                     1        \n"
                          "             128 |@@@@                                     1        \n"
                          "             256 |@@@@@@@@@@@@                             3        \n"
                          "             512 |@@@@@@@@@@@@@@@@                         4        \n"
                          "            1024 |                                         0        \n"
                          "\n");
}

TEST_F(ReportTest, QuantizeNegativeCounts) {
  const auto a = aggregation(plan::AggregationKind::kQuantize, {string()});
  update(a, 1, -123, {key("only negative")});
  update(a, 0, -123, {key("mixed")});
  update(a, -1, -123, {key("mixed")});
  update(a, 1, 246, {key("mixed")});
  update(a, 1, 1, {key("none")});
  update(a, 1, -1, {key("none")});
  EXPECT_EQ(finish(),
            std::string("\n") + "  only negative                                     \n" +
                kHeading +
                "               0                                         | 0        \n"
                "               1 @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@| -123     \n"
                "               2                                         | 0        \n\n"
                "  none                                              \n" +
                kHeading +
                "              -1 |                                         0        \n"
                "               0 |                                         0        \n"
                "               1 |                                         0        \n\n"
                "  mixed                                             \n" +
                kHeading +
                "              -2                     |                     0        \n"
                "              -1                @@@@@|                     -123     \n"
                "               0                @@@@@|                     -123     \n"
                "               1                     |@@@@@@@@@@           246      \n"
                "               2                     |                     0        \n\n");
}

TEST_F(ReportTest, QuantizeExtremes) {
  const auto a = aggregation(plan::AggregationKind::kQuantize);
  update(a, kMaximum, kMaximum);
  update(a, std::numeric_limits<std::int64_t>::min());
  const std::string text = finish();
  EXPECT_THAT(
      text,
      testing::HasSubstr(
          "4611686018427387904 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@ 9223372036854775807\n"));
  EXPECT_THAT(text,
              testing::HasSubstr(
                  "\n-4611686018427387904 |                                         1        \n"));
}

TEST_F(ReportTest, LquantizeEndsAndNormal) {
  const auto a = aggregation(plan::AggregationKind::kLquantize, {}, {-10, 5, 4}, 6);
  update(a, -11, 5);
  update(a, 9, 15);
  update(a, 10, 5);
  store().normalize(a, 5);
  EXPECT_EQ(finish(),
            std::string("\n\n") + kHeading +
                "           < -10 |@@@@@@@@                                 1        \n"
                "             -10 |                                         0        \n"
                "              -5 |                                         0        \n"
                "               0 |                                         0        \n"
                "               5 |@@@@@@@@@@@@@@@@@@@@@@@@                 3        \n"
                "           >= 10 |@@@@@@@@                                 1        \n\n");
}

TEST_F(ReportTest, LquantizeWithoutData) {
  const auto a = aggregation(plan::AggregationKind::kLquantize, {}, {0, 10, 10}, 12);
  update(a, 5);
  store().clear(a);
  EXPECT_EQ(finish(),
            std::string("\n\n") + kHeading +
                "             < 0 |                                         0        \n"
                "               0 |                                         0        \n"
                "              10 |                                         0        \n\n");
}

TEST_F(ReportTest, LlquantizeSkipsBinsThatHoldNoInteger) {
  const auto a = aggregation(plan::AggregationKind::kLlquantize, {}, {10, 0, 2, 20}, 111);
  for (std::int64_t i = 1; i <= 10; ++i) update(a, i, 5);
  store().normalize(a, 5);
  std::string expected = std::string("\n\n") + kHeading +
                         "               0 |                                         0        \n";
  for (int i = 1; i <= 10; ++i) {
    append(expected, "%16d |@@@@                                     1        \n", i);
  }
  expected += "              15 |                                         0        \n\n";
  EXPECT_EQ(finish(), expected);
}

TEST_F(ReportTest, LlquantizeBothSidesAndOverflow) {
  const auto a = aggregation(plan::AggregationKind::kLlquantize, {}, {10, 1, 2, 10}, 39);
  update(a, -1000, 1);
  update(a, 0, 2);
  update(a, 5000, 1);
  const std::string text = finish();
  EXPECT_THAT(text, testing::HasSubstr(
                        "        <= -1000 |@@@@@@@@@@                               1        \n"
                        "            -900 |"));
  EXPECT_THAT(text, testing::HasSubstr(
                        "      abs() < 10 |@@@@@@@@@@@@@@@@@@@@                     2        \n"
                        "              10 |"));
  EXPECT_THAT(text,
              testing::HasSubstr(
                  "         >= 1000 |@@@@@@@@@@                               1        \n\n"));
}

// -----------------------------------------------------------------------------------------------------
// messages, lists

TEST_F(ReportTest, DropsInDTracesWords) {
  TextOutput output(program, out, err, options);
  EXPECT_TRUE(output.drops({.record = 1, .aggregation = 3, .dynamic = 2}));
  EXPECT_EQ(err.take(),
            "dtrace: 1 drop on CPU 0\ndtrace: 3 aggregation drops on CPU 0\n"
            "dtrace: 2 dynamic variable drops\n");
  options.droptags = true;
  output.set_options(options);
  EXPECT_TRUE(output.drops({.record = 2, .level = 1, .no_slot = 1}));
  EXPECT_EQ(err.take(),
            "dtrace: [DTRACEDROP_PRINCIPAL] 2 drops on CPU 0\n"
            "dtrace: [TRAPLINEDROP_NESTING] 1 drop (probes nested too deeply)\n"
            "dtrace: [TRAPLINEDROP_THREADS] 1 drop (too many threads)\n");
  EXPECT_TRUE(output.drops({}));
  EXPECT_EQ(err.take(), "");
}

TEST_F(ReportTest, FaultMessages) {
  consume::Record fault = record();
  fault.kind = consume::kFaultRecord;
  const auto say = [&](consume::FaultFields value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    fault.payload.assign(bytes.begin(), bytes.end());
    TextOutput output(program, out, err, options);
    RecordInterpreter interpreter(program, probes, store(), output);
    EXPECT_TRUE(interpreter.run(fault));
    return err.take();
  };
  EXPECT_EQ(say({1, 12, 0xbeef}),
            "dtrace: error in dt_clause_0 for probe ID 1 (dtrace:::BEGIN): invalid address "
            "(0xbeef) at BPF pc 12\n");
  EXPECT_EQ(
      say({4, 3, 0}),
      "dtrace: error in dt_clause_0 for probe ID 1 (dtrace:::BEGIN): divide-by-zero at BPF pc 3\n");
  EXPECT_EQ(say({11, 3, static_cast<std::uint64_t>(-2)}),
            "dtrace: error in dt_clause_0 for probe ID 1 (dtrace:::BEGIN): index out of bounds "
            "(-2) at BPF pc 3\n");
  EXPECT_THAT(say({4711, 3, 0}), testing::HasSubstr("unknown fault"));
}

TEST(Lists, Rows) {
  EXPECT_EQ(list_heading(),
            "   ID   PROVIDER            MODULE                          FUNCTION NAME\n");
  EXPECT_EQ(list_row({1, "dtrace", "", "", "BEGIN"}),
            "    1     dtrace                                                     BEGIN\n");
  EXPECT_EQ(matched_message("script", "x.d", 1), "script 'x.d' matched 1 probe");
  EXPECT_EQ(matched_message("description", "tick-1s", 0), "description 'tick-1s' matched 0 probes");
}

// --------------------------------------------------------------------------------------------------------------
// sinks

TEST(Sinks, AFullDiskIsNotLost) {
  std::FILE* full = std::fopen("/dev/full", "w");
  if (full == nullptr) GTEST_SKIP() << "no /dev/full";
  FileSink sink(full, "<stdout>");
  (void)sink.write("text");
  const auto flushed = sink.flush();
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().os_errno(), ENOSPC);
  EXPECT_FALSE(sink.write("more")) << "the first failure stays";
  std::fclose(full);
}

TEST_F(ReportTest, AFailingSinkFailsTheRecord) {
  struct Broken : ByteSink {
    Result<> write(std::string_view) override { return Error::os(EPIPE, "write"); }
    Result<> flush() override { return {}; }
  } broken;
  TextOutput output(program, broken, err, options);
  act(ActionKind::kTrace, {add(integer(), 1)});
  RecordInterpreter interpreter(program, probes, store(), output);
  const auto outcome = interpreter.run(record());
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().os_errno(), EPIPE);
}

// ---------------------------------------------------------------------------------------------------------------
// JSON

TEST_F(ReportTest, JsonFiring) {
  const auto number = add(integer(), -5);
  const auto text = add(string(), "a\"b\n");
  const auto raw = add(string(), "\xff");
  act(ActionKind::kTrace, {number});
  act(ActionKind::kTrace, {text});
  act(ActionKind::kTrace, {raw});
  format(ActionKind::kPrintf, {literal("n="), conversion('d', number)});
  program.clauses[0].actions.back().fields = {number};
  act(ActionKind::kExit, {add(integer(4), 2)});
  EXPECT_EQ(
      json(1),
      "{\"type\":\"firing\",\"probe\":{\"id\":77,\"provider\":\"pid9\",\"module\":\"libc.so.6\","
      "\"function\":\"malloc\",\"name\":\"entry\"},\"clause\":0,\"cpu\":2,\"tid\":40,\"tsc\":0,"
      "\"actions\":[{\"trace\":-5},{\"trace\":\"a\\\"b\\n\"},{\"trace\":{\"hex\":\"ff\"}},"
      "{\"printf\":\"n=-5\",\"values\":[-5]},{\"exit\":2}]}\n");
}

TEST_F(ReportTest, JsonAggregations) {
  const auto a = aggregation(plan::AggregationKind::kStddev, {integer(4)});
  const auto q = aggregation(plan::AggregationKind::kQuantize);
  update(a, std::numeric_limits<std::int64_t>::min(), 1, {key(1, integer(4))});
  update(q, -4, 3);
  update(q, 1, 1);
  JsonOutput output(program, out, options);
  EXPECT_TRUE(output.finish(store()));
  EXPECT_EQ(out.take(),
            "{\"type\":\"aggregation\",\"name\":\"a\",\"function\":\"stddev\",\"normal\":1,"
            "\"types\":[\"int\"],\"entries\":[{\"key\":[1],"
            "\"value\":{\"count\":1,\"sum\":{\"integer\":\"-9223372036854775808\"},"
            "\"squares\":{\"integer\":\"85070591730234615865843651857942052864\"}}}]}\n"
            "{\"type\":\"aggregation\",\"name\":\"b\",\"function\":\"quantize\",\"normal\":1,"
            "\"types\":[],\"entries\":[{\"key\":[],"
            "\"value\":[{\"low\":-7,\"high\":-4,\"count\":3},"
            "{\"low\":1,\"high\":1,\"count\":1}]}]}\n");
}

TEST_F(ReportTest, JsonBinsHaveBothBounds) {
  const auto l = aggregation(plan::AggregationKind::kLquantize);
  program.aggregations[l].parameters[0] = 10;
  program.aggregations[l].parameters[1] = 5;
  program.aggregations[l].parameters[2] = 2;
  program.aggregations[l].bins = 4;
  update(l, 9, 1);
  update(l, 14, 2);
  update(l, 99, 1);
  EXPECT_EQ(json_aggregation(program, l, store(), {}),
            "\"name\":\"a\",\"function\":\"lquantize\",\"normal\":1,\"types\":[],"
            "\"entries\":[{\"key\":[],\"value\":[{\"low\":null,\"high\":9,\"count\":1},"
            "{\"low\":10,\"high\":14,\"count\":2},{\"low\":20,\"high\":null,\"count\":1}]}]");
}

TEST(Json, NumbersAreExactOrText) {
  EXPECT_EQ(json_integer(-9007199254740992), "-9007199254740992");
  EXPECT_EQ(json_integer(9007199254740993), "{\"integer\":\"9007199254740993\"}");
  EXPECT_EQ(json_unsigned(~std::uint64_t{0}), "{\"integer\":\"18446744073709551615\"}");
  EXPECT_EQ(json_wide(-Wide{~std::uint64_t{0}}), "{\"integer\":\"-18446744073709551615\"}");
  EXPECT_EQ(json_integer(0), "0");
}

TEST(Json, OnlyUtf8BecomesText) {
  EXPECT_EQ(json_string("\xc3\xa4\x01"), "\"\xc3\xa4\\u0001\"");
  EXPECT_EQ(json_string("\xc0\x80"), "{\"hex\":\"c080\"}") << "overlong";
  EXPECT_EQ(json_string("\xed\xa0\x80"), "{\"hex\":\"eda080\"}") << "a surrogate";
  EXPECT_EQ(json_string("\xe2\x82"), "{\"hex\":\"e282\"}") << "cut off";
  EXPECT_EQ(json_message("a\xe2\x82z"), "\"a\xef\xbf\xbd\xef\xbf\xbdz\"");
}

}  // namespace
}  // namespace trapline::report
