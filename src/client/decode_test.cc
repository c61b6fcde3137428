#include "client/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "client/decode_value.h"
#include "client/request.h"

namespace trapline::client {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

// Keeps the text that a document refers to.
struct Parsed {
  explicit Parsed(std::string_view from) : text(from) {
    auto parsed = parse_line({text.data(), text.size()});
    if (parsed) document = std::move(*parsed);
    valid = parsed.has_value();
  }
  std::string text;
  JsonDocument document;
  bool valid = false;
};

std::string_view view(trapline_string text) { return {text.data, text.size}; }

std::string snapshot_text(const std::string& aggregations) {
  return R"({"aggregations":[)" + aggregations +
         R"(],"drops":{"record":1,"aggregation":2,"dynamic":3,"speculation":8,"speculative":9,)"
         R"("level":4,"no_slot":5,"samples":10,"malformed":6,"client":7},"state":"running","text":"a\u0000b","later":true})";
}

Outcome<std::unique_ptr<trapline_snapshot>> snapshot_of(const std::string& aggregations) {
  Parsed parsed(snapshot_text(aggregations));
  EXPECT_TRUE(parsed.valid);
  return decode_snapshot(parsed.document.root);  // keeps nothing of it
}

std::string problem_of(const std::string& aggregations) {
  const auto snapshot = snapshot_of(aggregations);
  if (snapshot) return "";
  EXPECT_EQ(TRAPLINE_ERROR_PROTOCOL, snapshot.error().code);
  return snapshot.error().text;
}

TEST(JsonTest, OnlyObjectsAreLines) {
  EXPECT_TRUE(Parsed("{}").valid);
  for (const char* text : {"", "[]", "1", "{", "{}}", "{} {}", "nul", "{\"a\":1,}", "\xff"}) {
    EXPECT_FALSE(Parsed(text).valid) << text;
  }
  EXPECT_FALSE(Parsed(std::string_view("{}\0x", 4)).valid);
  EXPECT_FALSE(Parsed(std::string_view("{\"a\0\":1}", 9)).valid);
}

TEST(JsonTest, DeepNestingCostsNoStack) {
  std::string text = "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) text += '[';
  EXPECT_FALSE(Parsed(text).valid);
}

TEST(JsonTest, IntegersAreExact) {
  const Parsed parsed(
      R"({"a":9007199254740993,"b":{"integer":"18446744073709551615"},)"
      R"("c":{"integer":"-9223372036854775808"},"d":-1,"e":{"integer":"18446744073709551616"},)"
      R"("f":{"integer":"-9223372036854775809"},"g":1.0,"h":"5","i":{"integer":"1x"},)"
      R"("j":{"integer":5},"k":{"integer":""},"l":{"integer":"-"},"m":18446744073709551615,)"
      R"("n":18446744073709551616,"o":{"integer":"340282366920938463463374607431768211455"},)"
      R"("p":{"integer":"340282366920938463463374607431768211456"},"q":{"integer":"-0"}})");
  ASSERT_TRUE(parsed.valid);
  JsonReader reader;
  const auto at = [&](const char* name) -> const Json& { return *parsed.document.root.find(name); };
  EXPECT_EQ(9007199254740993, reader.signed_integer(at("a"), ""));
  EXPECT_EQ(std::numeric_limits<std::uint64_t>::max(), reader.unsigned_integer(at("b"), ""));
  EXPECT_EQ(kMin, reader.signed_integer(at("c"), ""));
  EXPECT_EQ(-1, reader.signed_integer(at("d"), ""));
  EXPECT_EQ(std::numeric_limits<std::uint64_t>::max(), reader.unsigned_integer(at("m"), ""));
  EXPECT_EQ(0u, reader.unsigned_integer(at("q"), ""));
  EXPECT_TRUE(~static_cast<unsigned __int128>(0) == reader.wide_integer(at("o"), ""));
  EXPECT_FALSE(reader.failed());
  for (const char* name : {"e", "f", "g", "h", "i", "j", "k", "l", "n"}) {
    EXPECT_FALSE(reader.integer(at(name))) << name;
  }
  for (const char* name : {"b", "m"}) {
    JsonReader strict;
    strict.signed_integer(at(name), "x");
    EXPECT_TRUE(strict.failed()) << name;
  }
  JsonReader strict;
  strict.unsigned_integer(at("d"), "x");
  EXPECT_TRUE(strict.failed());
  JsonReader wide;
  wide.wide_integer(at("p"), "x");
  EXPECT_TRUE(wide.failed());
}

TEST(DecodeTest, ASnapshot) {
  const auto decoded = snapshot_of(
      R"({"name":"calls","function":"count","normal":1,"types":[],"entries":[{"key":[],"value":3}]},)"
      R"({"name":"by","function":"sum","normal":1000,"types":["int","uint","string","bytes"],)"
      R"("entries":[{"key":[-1,{"integer":"18446744073709551615"},"na\"me",{"hex":"00ff"}],)"
      R"("value":-5},{"key":[1,2,{"hex":"ff41"},{"hex":""}],"value":{"integer":"9223372036854775808"}}]},)"
      R"({"name":"q","function":"quantize","normal":1,"types":[],"entries":[{"key":[],"value":)"
      R"([{"low":null,"high":-1,"count":1},{"low":64,"high":127,"count":2},)"
      R"({"low":{"integer":"4611686018427387904"},"high":null,"count":{"integer":"9007199254740993"}}]}]},)"
      R"({"name":"a","function":"avg","normal":1,"types":[],"entries":[{"key":[],"value":{"count":3,"sum":-10}}]},)"
      R"({"name":"s","function":"stddev","normal":1,"types":[],"entries":[{"key":[],"value":)"
      R"({"count":2,"sum":10,"squares":{"integer":"58"}}}]},)"
      R"({"name":"none","function":"llquantize","normal":1,"types":["string"],"entries":[]})");
  ASSERT_TRUE(decoded) << decoded.error().text;
  const trapline_snapshot* snapshot = decoded->get();
  EXPECT_EQ(std::string_view("a\0b", 3), view(trapline_snapshot_text(snapshot)));
  EXPECT_EQ(TRAPLINE_STATE_RUNNING, trapline_snapshot_state(snapshot));
  const trapline_drops drops = trapline_snapshot_drops(snapshot);
  EXPECT_EQ(1u, drops.record);
  EXPECT_EQ(5u, drops.no_slot);
  EXPECT_EQ(7u, drops.client);
  EXPECT_EQ(8u, drops.speculation);
  EXPECT_EQ(9u, drops.speculative);
  EXPECT_EQ(10u, drops.samples);
  ASSERT_EQ(6u, trapline_snapshot_size(snapshot));
  EXPECT_EQ(nullptr, trapline_snapshot_aggregation(snapshot, 6));
  EXPECT_EQ(nullptr, trapline_snapshot_find(snapshot, "call", 4));
  EXPECT_EQ(nullptr, trapline_snapshot_find(snapshot, "callsx", 6));

  const trapline_aggregation* calls = trapline_snapshot_find(snapshot, "callsx", 5);
  ASSERT_NE(nullptr, calls);
  EXPECT_EQ(TRAPLINE_FUNCTION_COUNT, trapline_aggregation_function(calls));
  const trapline_entry* only = trapline_aggregation_find(calls, nullptr, 0);
  ASSERT_NE(nullptr, only);
  trapline_value value{};
  EXPECT_EQ(TRAPLINE_OK, trapline_entry_value(only, &value));
  EXPECT_EQ(3, value.integer);
  EXPECT_EQ(TRAPLINE_VALUE_INT, value.type);
  std::size_t count = 9;
  trapline_entry_buckets(only, &count);
  EXPECT_EQ(0u, count);
  trapline_statistics statistics{};
  EXPECT_EQ(TRAPLINE_ERROR_TYPE, trapline_entry_statistics(only, &statistics));

  const trapline_aggregation* by = trapline_snapshot_aggregation(snapshot, 1);
  EXPECT_EQ(1000u, trapline_aggregation_normal(by));
  ASSERT_EQ(2u, trapline_aggregation_size(by));
  std::size_t size = 0;
  const trapline_value* key = trapline_entry_key(trapline_aggregation_entry(by, 0), &size);
  ASSERT_EQ(4u, size);
  EXPECT_EQ(TRAPLINE_VALUE_INT, key[0].type);
  EXPECT_EQ(-1, key[0].integer);
  EXPECT_EQ(TRAPLINE_VALUE_UINT, key[1].type);
  EXPECT_EQ(-1, key[1].integer);
  EXPECT_EQ("na\"me", view(key[2].bytes));
  EXPECT_EQ(TRAPLINE_VALUE_BYTES, key[3].type);
  EXPECT_EQ(std::string_view("\0\xff", 2), view(key[3].bytes));
  const trapline_entry* second = trapline_aggregation_entry(by, 1);
  key = trapline_entry_key(second, &size);
  EXPECT_EQ(TRAPLINE_VALUE_STRING, key[2].type);
  EXPECT_EQ(
      "\xff"
      "A",
      view(key[2].bytes));
  EXPECT_EQ(TRAPLINE_OK, trapline_entry_value(second, &value));
  EXPECT_EQ(TRAPLINE_VALUE_UINT, value.type);
  EXPECT_EQ(kMin, value.integer);

  // Keys are found by value, whatever the type of an integer.
  trapline_value wanted[4] = {{TRAPLINE_VALUE_UINT, 1, {"", 0}},
                              {TRAPLINE_VALUE_INT, 2, {"", 0}},
                              {TRAPLINE_VALUE_BYTES,
                               0,
                               {"\xff"
                                "A",
                                2}},
                              {TRAPLINE_VALUE_STRING, 0, {"", 0}}};
  EXPECT_EQ(second, trapline_aggregation_find(by, wanted, 4));
  EXPECT_EQ(nullptr, trapline_aggregation_find(by, wanted, 3));
  wanted[0].integer = -1;  // 2^64 - 1, which is not -1
  wanted[1].integer = -1;
  wanted[2].bytes = {"na\"me", 5};
  wanted[3].bytes = {"\0\xff", 2};
  EXPECT_EQ(nullptr, trapline_aggregation_find(by, wanted, 4));
  wanted[0].type = TRAPLINE_VALUE_INT;
  wanted[1].type = TRAPLINE_VALUE_UINT;
  EXPECT_EQ(trapline_aggregation_entry(by, 0), trapline_aggregation_find(by, wanted, 4));

  const trapline_bucket* buckets = trapline_entry_buckets(
      trapline_aggregation_entry(trapline_snapshot_find(snapshot, "q", 1), 0), &count);
  ASSERT_EQ(3u, count);
  EXPECT_EQ(kMin, buckets[0].low);
  EXPECT_EQ(-1, buckets[0].high);
  EXPECT_EQ(64, buckets[1].low);
  EXPECT_EQ(127, buckets[1].high);
  EXPECT_EQ(2, buckets[1].count);
  EXPECT_EQ(std::int64_t{1} << 62, buckets[2].low);
  EXPECT_EQ(kMax, buckets[2].high);
  EXPECT_EQ(9007199254740993, buckets[2].count);

  const auto scalar = [&](const char* name) {
    trapline_value out{};
    const auto* aggregation = trapline_snapshot_find(snapshot, name, 1);
    EXPECT_EQ(TRAPLINE_OK, trapline_entry_value(trapline_aggregation_entry(aggregation, 0), &out));
    return out.integer;
  };
  EXPECT_EQ(-3, scalar("a"));
  EXPECT_EQ(2, scalar("s"));  // sqrt(29 - 25)
  EXPECT_EQ(TRAPLINE_ERROR_TYPE,
            trapline_entry_value(
                trapline_aggregation_entry(trapline_snapshot_find(snapshot, "q", 1), 0), &value));
}

TEST(DecodeTest, WhatIsNotAsWrittenIsNamed) {
  const std::string head =
      R"({"name":"x","function":"count","normal":1,"types":["int"],"entries":)";
  EXPECT_EQ("", problem_of(head + R"([{"key":[1],"value":1}]})"));
  const std::pair<std::string, const char*> cases[] = {
      {"5", "name is missing"},
      {R"({"name":7,"function":"count"})", "name is not a string"},
      {R"({"name":"x","function":"median","normal":1,"types":[],"entries":[]})",
       "function is not known"},
      {R"({"name":"x","function":"count","normal":-1,"types":[],"entries":[]})", "normal"},
      {R"({"name":"x","function":"count","normal":1,"types":["float"],"entries":[]})", "types"},
      {R"({"name":"x","function":"count","normal":1,"entries":[]})", "types is missing"},
      {head + "{}}", "entries is not an array"},
      {head + R"([{"key":[],"value":1}]})", "key has another size"},
      {head + R"([{"key":["a"],"value":1}]})", "another type"},
      {head + R"([{"key":[{"integer":"18446744073709551615"}],"value":1}]})", "too great"},
      {head + R"([{"key":[1],"value":"x"}]})", "value is not an integer"},
      {head + R"([{"key":[1],"value":1.5}]})", "value is not a value"},
      {head + R"([{"key":[{"hex":"0"}],"value":1}]})", "key is not a value"},
      {head + R"([{"key":[{"hex":"0G"}],"value":1}]})", "key is not a value"},
      {head + R"([{"value":1}]})", "key is missing"},
      {R"({"name":"x","function":"avg","normal":1,"types":[],"entries":[{"key":[],"value":3}]})",
       "count is missing"},
      {R"({"name":"x","function":"quantize","normal":1,"types":[],"entries":[{"key":[],"value":3}]})",
       "histogram is not an array"},
      {R"({"name":"x","function":"quantize","normal":1,"types":[],"entries":[{"key":[],"value":[{"low":1,"high":2}]}]})",
       "count is missing"},
  };
  for (const auto& [text, problem] : cases)
    EXPECT_THAT(problem_of(text), testing::HasSubstr(problem)) << text;

  std::string types;
  for (int i = 0; i < 100; ++i) types += i == 0 ? "\"int\"" : ",\"int\"";
  EXPECT_THAT(problem_of(R"({"name":"x","function":"count","normal":1,"types":[)" + types +
                         R"(],"entries":[]})"),
              testing::HasSubstr("too many"));
}

TEST(DecodeTest, StandardDeviationIsExact) {
  // The sum of two squares of 2^63 needs 127 bits; deviation of {-2^63, -2^63} is 0.
  trapline_statistics statistics{2, 0, std::uint64_t{1} << 63, 0};
  EXPECT_EQ(std::uint64_t{1} << 63, standard_deviation(statistics));
  statistics = {3, 30, 0, 314};  // {8, 9, 13}: mean 10, mean of squares 104
  EXPECT_EQ(2u, standard_deviation(statistics));
  EXPECT_EQ(0u, standard_deviation({0, 5, 0, 5}));
  EXPECT_EQ(0u, standard_deviation({2, 100, 0, 1})) << "numbers that cannot be";
}

TEST(DecodeTest, Reports) {
  Parsed parsed(
      R"({"matched":7,"diagnostics":[{"severity":"warning","tag":"T","file":"f.d","line":3,"column":4,)"
      R"("text":"t","hint":"h"},{"severity":"error","line":0,"column":0,"text":"u"}],"notes":["n","m"],)"
      R"("refused":[{"probe":"p","address":{"integer":"18446744073699065856"},"reason":"r"}]})");
  ASSERT_TRUE(parsed.valid);
  const auto report = decode_report(parsed.document.root);
  ASSERT_TRUE(report) << report.error().text;
  std::size_t count = 0;
  EXPECT_EQ(7u, trapline_report_probes(report->get()));
  const trapline_diagnostic* diagnostics = trapline_report_diagnostics(report->get(), &count);
  ASSERT_EQ(2u, count);
  EXPECT_EQ(TRAPLINE_SEVERITY_WARNING, diagnostics[0].severity);
  EXPECT_EQ(3u, diagnostics[0].line);
  EXPECT_EQ(4u, diagnostics[0].column);
  EXPECT_EQ("T", view(diagnostics[0].tag));
  EXPECT_EQ("f.d", view(diagnostics[0].file));
  EXPECT_EQ("h", view(diagnostics[0].hint));
  EXPECT_EQ(TRAPLINE_SEVERITY_ERROR, diagnostics[1].severity);
  EXPECT_EQ("", view(diagnostics[1].hint));
  EXPECT_EQ('\0', *diagnostics[1].hint.data);
  const trapline_string* notes = trapline_report_notes(report->get(), &count);
  ASSERT_EQ(2u, count);
  EXPECT_EQ("m", view(notes[1]));
  const trapline_refusal* refusals = trapline_report_refusals(report->get(), &count);
  ASSERT_EQ(1u, count);
  EXPECT_EQ(18446744073699065856u, refusals[0].address);

  for (const char* text : {R"({"matched":"x"})", R"({"notes":[1]})", R"({"notes":{}})",
                           R"({"diagnostics":[{"severity":"error"}]})", R"({"refused":[5]})"}) {
    Parsed wrong(text);
    ASSERT_TRUE(wrong.valid);
    EXPECT_FALSE(decode_report(wrong.document.root)) << text;
  }
}

TEST(DecodeTest, Notifications) {
  Parsed records(
      R"({"records":[{"probe":{"id":3,"provider":"pid1","module":"m","function":"f","name":"entry"},)"
      R"("cpu":1,"tid":7,"time":{"integer":"9223372036854775807"},"actions":[{"trace":-4},)"
      R"({"trace":"s"},{"printf":"x 1\n","values":[1,"a",{"hex":"00"}]},{"exit":2},)"
      R"({"printa":[{"name":"c","function":"count","normal":1,"types":[],"entries":[{"key":[],"value":1}]}]}]}]})");
  ASSERT_TRUE(records.valid);
  auto batch = decode_notification("records", records.document.root);
  ASSERT_TRUE(batch) << batch.error().text;
  ASSERT_EQ(1u, (*batch)->records.size());
  const trapline_record* record = (*batch)->records.data();
  EXPECT_EQ(TRAPLINE_RECORD_FIRING, trapline_record_get_kind(record));
  EXPECT_EQ("f", view(trapline_record_probe(record)->function));
  EXPECT_EQ(1, trapline_record_cpu(record));
  EXPECT_EQ(7, trapline_record_tid(record));
  EXPECT_EQ(9223372036854775807u, trapline_record_time(record));
  std::size_t count = 0;
  const trapline_action* actions = trapline_record_actions(record, &count);
  ASSERT_EQ(5u, count);
  EXPECT_EQ(-4, actions[0].value.integer);
  EXPECT_EQ("s", view(actions[1].value.bytes));
  EXPECT_EQ(TRAPLINE_ACTION_PRINTF, actions[2].kind);
  EXPECT_EQ("x 1\n", view(actions[2].text));
  ASSERT_EQ(3u, actions[2].value_count);
  EXPECT_EQ(TRAPLINE_VALUE_BYTES, actions[2].values[2].type);
  EXPECT_EQ(TRAPLINE_ACTION_EXIT, actions[3].kind);
  EXPECT_EQ(2, actions[3].value.integer);
  ASSERT_EQ(1u, actions[4].aggregation_count);
  EXPECT_EQ("c", view(trapline_aggregation_name(actions[4].aggregations[0])));

  Parsed ended(R"({"reason":"exit","status":3,"text":"t"})");
  batch = decode_notification("ended", ended.document.root);
  ASSERT_TRUE(batch);
  EXPECT_TRUE((*batch)->ended);
  int status = 0;
  EXPECT_EQ(TRAPLINE_END_EXIT, trapline_record_end((*batch)->records.data(), &status));
  EXPECT_EQ(3, status);

  Parsed fault(R"({"probe":{"id":1},"fault":2,"address":16,"message":"m"})");
  batch = decode_notification("fault", fault.document.root);
  ASSERT_TRUE(batch);
  int number = 0;
  EXPECT_EQ(16u, trapline_record_fault((*batch)->records.data(), &number));
  EXPECT_EQ(2, number);
  EXPECT_EQ("m", view(trapline_record_text((*batch)->records.data())));

  batch = decode_notification("something else", fault.document.root);
  ASSERT_TRUE(batch);
  EXPECT_EQ(nullptr, *batch) << "later versions may have more";
  for (const char* method : {"records", "ended", "drops", "note"}) {
    EXPECT_FALSE(decode_notification(method, fault.document.root)) << method;
  }
}

TEST(DecodeTest, Errors) {
  const auto decode = [](const std::string& text) {
    Parsed parsed(text);
    EXPECT_TRUE(parsed.valid);
    return decode_error(parsed.document.root);
  };
  const std::pair<const char*, trapline_error> kinds[] = {
      {R"("kind":"state")", TRAPLINE_ERROR_STATE},
      {R"("kind":"permission")", TRAPLINE_ERROR_PERMISSION},
      {R"("kind":"permission","rule":"owner")", TRAPLINE_ERROR_PERMISSION},
      {R"("kind":"permission","rule":"yama")", TRAPLINE_ERROR_YAMA},
      {R"("kind":"permission","rule":"tracer")", TRAPLINE_ERROR_BUSY_TRACER},
      {R"("kind":"not_found")", TRAPLINE_ERROR_NOT_FOUND},
      {R"("kind":"gone")", TRAPLINE_ERROR_TARGET_GONE},
      {R"("kind":"unsupported")", TRAPLINE_ERROR_UNSUPPORTED},
      {R"("kind":"os")", TRAPLINE_ERROR_OS},
      {R"("kind":"internal")", TRAPLINE_ERROR_INTERNAL},
      {R"("kind":"parameters")", TRAPLINE_ERROR_ARGUMENT},
      {R"("kind":"of tomorrow")", TRAPLINE_ERROR_PROTOCOL},
  };
  for (const auto& [data, code] : kinds) {
    const auto error =
        decode(R"({"code":-32000,"message":"text","data":{)" + std::string(data) + "}}");
    ASSERT_TRUE(error);
    EXPECT_EQ(code, error->failure.code) << data;
    EXPECT_EQ("text", error->failure.text);
    EXPECT_EQ(nullptr, error->report);
  }
  const auto bare = decode(R"({"code":-32601,"message":"no such method"})");
  ASSERT_TRUE(bare);
  EXPECT_EQ(TRAPLINE_ERROR_PROTOCOL, bare->failure.code);
  const auto mistakes = decode(
      R"({"code":-32001,"message":"m","data":{"kind":"compile","diagnostics":[{"severity":"error","line":1,"column":2,"text":"t"}]}})");
  ASSERT_TRUE(mistakes);
  ASSERT_NE(nullptr, mistakes->report);
  EXPECT_EQ(1u, mistakes->report->diagnostics.size());
  EXPECT_FALSE(decode(R"({"code":1})"));
  EXPECT_FALSE(decode(R"({"message":"m","data":{"kind":5}})"));
}

TEST(RequestTest, WhatItWrites) {
  Request request(7, "compile");
  request.key("text").text("a\"\\\n\x01\xc3\xa9");
  request.key("arguments").begin_array().text("x").integer(-5).end_array();
  request.key("options").begin_object().key("zdefs").boolean(true).end_object();
  const auto line = request.finish();
  ASSERT_TRUE(line);
  EXPECT_EQ(R"({"jsonrpc":"2.0","id":7,"method":"compile","params":{"text":"a\"\\\u000a\u0001)"
            "\xc3\xa9"
            R"(","arguments":["x",-5],"options":{"zdefs":true}}})"
            "\n",
            *line);
}

TEST(RequestTest, OnlyUtf8IsSent) {
  for (const char* text :
       {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
  for (const char* text :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xff", "\xc3("}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
  Request request(1, "compile");
  request.key("text").text("\xff");
  const auto line = request.finish();
  ASSERT_FALSE(line);
  EXPECT_EQ(TRAPLINE_ERROR_ARGUMENT, line.error().code);
}

}  // namespace
}  // namespace trapline::client
