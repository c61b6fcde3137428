// Random D programs, to compare the engines on.
//
// A program is one or a few clauses on one probe, the declarations of what they use, and the
// arguments of the firings to run them on. Everything follows from the seed (and the compiler,
// which orders the calls). The programs are valid: what DTrace refuses (a constant zero as a
// divisor) is not made. What may differ between engines without being wrong is not made either: the
// clock, the processor, and reading scratch behind what was copied there.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trapline::session::test {

using Arguments = std::array<std::uint64_t, 10>;

struct RandomClause {
  std::string predicate;  // may be empty
  std::vector<std::string> statements;
};

struct RandomProgram {
  std::uint64_t seed = 0;
  std::vector<std::string> declarations;
  std::vector<RandomClause> clauses;
  std::vector<Arguments> firings;
};

// Memory of the test that programs may read: pages of data between two that cannot be read, at a
// fixed address, so that a seed always means the same.
struct Memory {
  static constexpr std::uint64_t kStart = 0x2000'0000'0000;
  static constexpr std::uint64_t kSize = 2 * 4096;
  static constexpr std::uint64_t kEnd = kStart + kSize;
  // Where the texts of `texts()` lie: the n-th at kStart + n * kTextStride. The last bytes of the
  // memory are a text without an end.
  static constexpr std::uint64_t kTextStride = 64;
  static constexpr std::uint64_t kUnterminated = kEnd - 24;

  static const std::vector<std::string>& texts();
  // Maps and fills it; once a process.
  static bool map();
};

// What all programs of one compilation share: a structure, and the variables of scope this.
std::string shared_declarations();

// kWhole: all that is described above. kExpressions: kExpressionsAProgram small programs in one
// clause, each of which assigns an integer expression, without memory, strings or records, to a
// variable of its own; these cost far less.
enum class Kind { kWhole, kExpressions };
inline constexpr std::uint64_t kExpressionsAProgram = 10;

// `number` makes the names of variables and the provider unlike those of other programs of the
// compilation.
RandomProgram make_random_program(std::uint64_t seed, std::uint32_t number,
                                  Kind kind = Kind::kWhole);

// As D text, without the shared declarations.
std::string to_text(const RandomProgram& program, std::uint32_t number);

}  // namespace trapline::session::test
