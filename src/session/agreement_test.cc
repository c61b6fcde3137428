// The two engines agree: what the reference interpreter does for a random program, compiled code
// does too.
//
// Programs are compiled many at a time, since a compilation costs far more than a program; they
// share nothing but the variables of scope this. Where an account differs, the program is run again
// alone, made as small as it can be while the accounts still differ, and printed with its seed.
//
// Half of the batches are compiled with each effort. Optimised machine code takes tens of
// milliseconds a program, so a tenth of the programs are whole
// ones; the others are expressions of integers. TRAPLINE_AGREEMENT_SEED (any number) makes other
// programs, TRAPLINE_AGREEMENT_TIMES makes so many times as many, TRAPLINE_AGREEMENT_REPLAY is the
// seed of the whole program that AgreementReplay runs.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "dlang/compile.h"
#include "session/test_random_program.h"
#include "session/test_two_engines.h"

namespace trapline::session::test {
namespace {

constexpr std::uint64_t kShards = 4;  // each a test of its own: they run at the same time
constexpr std::uint64_t kWholePrograms = 2'000;
constexpr std::uint64_t kExpressions = 18'000;
constexpr std::uint64_t kBatch = 150;
constexpr const char* kStringSizes[] = {"256", "24", "9"};

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

struct Batch {
  std::vector<RandomProgram> programs;
  std::string strsize;
  codegen::Effort effort = codegen::Effort::kFull;

  static Batch of(Kind kind, std::span<const std::uint64_t> seeds, const std::string& strsize) {
    Batch batch{{}, strsize};
    for (const std::uint64_t seed : seeds) {
      const auto number = static_cast<std::uint32_t>(batch.programs.size());
      batch.programs.push_back(make_random_program(seed, number, kind));
    }
    return batch;
  }

  std::string text() const {
    std::string all = shared_declarations();
    for (std::size_t i = 0; i < programs.size(); ++i)
      all += to_text(programs[i], static_cast<std::uint32_t>(i));
    return all;
  }
};

// kInvalid: not D. kRefused: by the code generator.
enum class Verdict { kAgree, kDiffer, kInvalid, kRefused };

struct Comparison {
  Verdict verdict = Verdict::kInvalid;
  std::string complaints;
  std::vector<Account> interpreted;
  std::vector<Account> native;
};

dlang::CompileResult compile(const Batch& batch) {
  plan::Options options;
  EXPECT_TRUE(options.set("strsize", batch.strsize));
  EXPECT_TRUE(options.set("dynvarsize", "1m"));
  dlang::CompileRequest request;
  request.sources.push_back({"agreement.d", batch.text()});
  request.options = &options;
  return dlang::compile(request);
}

Comparison compare(const Batch& batch) {
  Comparison comparison;
  const dlang::CompileResult compiled = compile(batch);
  for (const diag::Diagnostic& diagnostic : compiled.diagnostics.sorted()) {
    comparison.complaints += fmt::format("D_{}: {}\n", diagnostic.tag, diagnostic.text);
  }
  if (!compiled.program) return comparison;
  std::vector<Part> parts;
  std::uint32_t clause = 0;
  for (std::size_t i = 0; i < batch.programs.size(); ++i) {
    const auto count = static_cast<std::uint32_t>(batch.programs[i].clauses.size());
    parts.push_back({static_cast<std::uint32_t>(i), clause, count, batch.programs[i].firings});
    clause += count;
  }
  auto native = run_native(*compiled.program, parts, batch.effort);
  if (!native) {
    comparison.verdict =
        native.error().code() == ErrorCode::kUnsupported ? Verdict::kRefused : Verdict::kInvalid;
    comparison.complaints += native.error().text();
    return comparison;
  }
  comparison.native = std::move(*native);
  comparison.interpreted = run_interpreter(*compiled.program, parts);
  comparison.verdict =
      comparison.interpreted == comparison.native ? Verdict::kAgree : Verdict::kDiffer;
  return comparison;
}

// ------------------------------------------------------------------------------- making it smaller

// Takes `change` back unless the program still differs after it.
template <typename Change>
bool try_change(Batch& batch, Change change) {
  Batch smaller = batch;
  change(smaller.programs.front());
  if (smaller.programs.front().clauses.empty() || compare(smaller).verdict != Verdict::kDiffer)
    return false;
  batch = std::move(smaller);
  return true;
}

void shrink(Batch& batch) {
  const auto erase = [](auto& container, std::size_t i) {
    container.erase(container.begin() + static_cast<std::ptrdiff_t>(i));
  };
  const auto program = [&]() -> const RandomProgram& { return batch.programs.front(); };
  for (std::size_t i = program().firings.size(); i-- != 0;) {
    try_change(batch, [&](RandomProgram& p) { erase(p.firings, i); });
  }
  for (std::size_t c = program().clauses.size(); c-- != 0;) {
    if (try_change(batch, [&](RandomProgram& p) { erase(p.clauses, c); })) continue;
    try_change(batch, [&](RandomProgram& p) { p.clauses[c].predicate.clear(); });
    for (std::size_t s = program().clauses[c].statements.size(); s-- != 0;) {
      try_change(batch, [&](RandomProgram& p) { erase(p.clauses[c].statements, s); });
    }
  }
  for (std::size_t i = program().declarations.size(); i-- != 0;) {
    try_change(batch, [&](RandomProgram& p) { erase(p.declarations, i); });
  }
}

// --------------------------------------------------------------------------------------- reporting

std::string difference(const Account& interpreted, const Account& native) {
  std::string text;
  const std::size_t lines = std::max(interpreted.size(), native.size());
  for (std::size_t i = 0; i < lines; ++i) {
    const std::string left = i < interpreted.size() ? interpreted[i] : "(nothing)";
    const std::string right = i < native.size() ? native[i] : "(nothing)";
    if (left != right) text += fmt::format("interpreter: {}\nmachine code: {}\n", left, right);
  }
  return text;
}

void report(const Batch& batch) {
  const RandomProgram& program = batch.programs.front();
  const Comparison comparison = compare(batch);
  std::string firings;
  for (const Arguments& arguments : program.firings) {
    for (const std::uint64_t argument : arguments) firings += fmt::format("{:#x} ", argument);
    firings += "\n";
  }
  ADD_FAILURE() << "seed " << program.seed << ", strsize " << batch.strsize
                << (batch.effort == codegen::Effort::kQuick ? ", quick code\n" : "\n")
                << comparison.complaints << batch.text() << "arguments of the firings:\n"
                << firings
                << (comparison.verdict == Verdict::kDiffer
                        ? difference(comparison.interpreted.front(), comparison.native.front())
                        : "");
}

struct Counts {
  std::size_t lines = 0;  // of all accounts
  std::size_t records = 0;
  std::size_t faults = 0;
  std::size_t exits = 0;
  std::size_t elements = 0;
  std::size_t aggregations = 0;
  std::size_t refused = 0;

  void add(const Account& account) {
    for (const std::string& line : account) {
      ++lines;
      records += line.find(": record") != std::string::npos ? 1U : 0U;
      faults += line.find(": fault") != std::string::npos ? 1U : 0U;
      exits += line == "exit" ? 1U : 0U;
      elements += line.starts_with('v') && line.find("] = ") != std::string::npos ? 1U : 0U;
      aggregations += line.starts_with('@') ? 1U : 0U;
    }
  }
};

// Compares the programs of these seeds, together as far as that works: a batch that is refused, or
// in which something differs, is halved until the programs to blame are found.
void check(Kind kind, std::span<const std::uint64_t> seeds, const std::string& strsize,
           codegen::Effort effort, Counts& counts) {
  Batch batch = Batch::of(kind, seeds, strsize);
  batch.effort = effort;
  const Comparison comparison = compare(batch);
  for (const Account& account : comparison.native) counts.add(account);
  if (comparison.verdict == Verdict::kAgree) return;
  if (seeds.size() > 1) {
    check(kind, seeds.first(seeds.size() / 2), strsize, effort, counts);
    check(kind, seeds.subspan(seeds.size() / 2), strsize, effort, counts);
    EXPECT_TRUE(comparison.verdict != Verdict::kDiffer || ::testing::Test::HasFailure())
        << "programs that agree alone do not together; seeds from " << seeds.front();
    return;
  }
  if (comparison.verdict == Verdict::kRefused) {
    ++counts.refused;
    return;
  }
  if (comparison.verdict == Verdict::kDiffer) shrink(batch);
  report(batch);
}

Counts check_shard(Kind kind, std::uint64_t shard, std::uint64_t programs) {
  const std::uint64_t count = programs * number_from("TRAPLINE_AGREEMENT_TIMES", 1) / kShards;
  const std::uint64_t first =
      number_from("TRAPLINE_AGREEMENT_SEED", 1) * 1'000'000'000 + shard * 1'000'000;
  Counts counts;
  for (std::uint64_t done = 0; done < count; done += kBatch) {
    std::vector<std::uint64_t> seeds;
    for (std::uint64_t i = done; i < std::min(done + kBatch, count); ++i)
      seeds.push_back(first + i);
    const std::uint64_t round = done / kBatch;
    const auto effort = round % 2 == 0 ? codegen::Effort::kQuick : codegen::Effort::kFull;
    check(kind, seeds, kStringSizes[(round + shard) % std::size(kStringSizes)], effort, counts);
  }
  // Programs that do nothing would agree as well: on average an account has several lines.
  EXPECT_GT(counts.lines, 3 * count);
  EXPECT_LE(counts.refused, count / 100) << "programs were refused by the code generator";
  return counts;
}

// --------------------------------------------------------------------------------------- the tests

class Agreement : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static void SetUpTestSuite() {
    static const bool mapped = Memory::map();
    ASSERT_TRUE(mapped) << "the address at which programs find their data is taken";
  }
};

TEST_P(Agreement, OfWholePrograms) {
  const Counts counts = check_shard(Kind::kWhole, GetParam(), kWholePrograms);
  EXPECT_GT(counts.records, 100U);
  EXPECT_GT(counts.faults, 20U);
  EXPECT_GT(counts.exits, 0U);
  EXPECT_GT(counts.elements, 15U);
  EXPECT_GT(counts.aggregations, 50U);
  std::printf("%zu records, %zu faults, %zu exits, %zu elements, %zu aggregations; %zu refused\n",
              counts.records, counts.faults, counts.exits, counts.elements, counts.aggregations,
              counts.refused);
}

TEST_P(Agreement, OfExpressions) {
  check_shard(Kind::kExpressions, GetParam(), kExpressions / kExpressionsAProgram);
}

INSTANTIATE_TEST_SUITE_P(Shards, Agreement, ::testing::Range<std::uint64_t>(0, kShards));

TEST(AgreementPrograms, FollowFromTheirSeed) {
  const std::uint64_t seeds[] = {1, 2};
  for (const Kind kind : {Kind::kWhole, Kind::kExpressions}) {
    EXPECT_EQ(Batch::of(kind, seeds, "256").text(), Batch::of(kind, seeds, "256").text());
    EXPECT_NE(to_text(make_random_program(1, 0, kind), 0),
              to_text(make_random_program(2, 0, kind), 0));
  }
}

class AgreementReplay : public Agreement {};

TEST_P(AgreementReplay, OfOneProgram) {
  const std::uint64_t seeds[] = {number_from("TRAPLINE_AGREEMENT_REPLAY", 1)};
  Counts counts;
  for (const auto effort : {codegen::Effort::kFull, codegen::Effort::kQuick})
    check(Kind::kWhole, seeds, kStringSizes[GetParam()], effort, counts);
  EXPECT_GT(counts.lines, 0U);
}

INSTANTIATE_TEST_SUITE_P(StringSizes, AgreementReplay,
                         ::testing::Range<std::uint64_t>(0, std::size(kStringSizes)));

}  // namespace
}  // namespace trapline::session::test
