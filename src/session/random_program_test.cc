// The grammar of random programs. See test_random_program.h.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <cstring>
#include <random>
#include <span>
#include <utility>

#include "session/test_random_program.h"

namespace trapline::session::test {
namespace {

struct Expression {
  std::string text;
  bool is_constant = false;  // the front end might fold it
};

struct Scalar {
  std::string place;  // as it is written: "g1_0", "self->s1_1", "this->ti"
};
struct Array {
  std::string place;
  std::vector<std::string> keys;  // "string", or an integer type
};
struct Aggregation {
  std::string name;
  std::string function;
  std::string parameters;  // of the quantizers: ", 0, 100, 10"
  bool weighs = false;     // may have a weight
  std::vector<std::string> keys;
};

constexpr const char* kIntegerTypes[] = {"int8_t",    "uint8_t",       "int16_t", "uint16_t",
                                         "int32_t",   "uint32_t",      "int64_t", "uint64_t",
                                         "char",      "unsigned char", "short",   "unsigned int",
                                         "long long", "unsigned long", "int",     "long"};
constexpr const char* kCorners[] = {"0",
                                    "1",
                                    "(-1)",
                                    "2",
                                    "(-2)",
                                    "3",
                                    "7",
                                    "8",
                                    "10",
                                    "31",
                                    "32",
                                    "63",
                                    "64",
                                    "65",
                                    "127",
                                    "128",
                                    "(-128)",
                                    "(-129)",
                                    "255",
                                    "256",
                                    "32767",
                                    "32768",
                                    "65535",
                                    "2147483647",
                                    "2147483648",
                                    "(-2147483648)",
                                    "4294967295",
                                    "4294967296",
                                    "9223372036854775807",
                                    "(-9223372036854775807-1)",
                                    "0x8000000000000000",
                                    "0xffffffffffffffff",
                                    "18446744073709551615ULL",
                                    "1u",
                                    "0777",
                                    "'A'",
                                    "'\\377'"};
constexpr const char* kNonZero[] = {
    "1", "(-1)", "2", "3", "(-7)", "10", "255", "4294967296", "(-9223372036854775807-1)"};
constexpr const char* kTexts[] = {
    "\"\"",       "\"a\"",          "\"ab\"",
    "\"abc\"",    "\"b\"",          "\"malloc\"",
    "\"entry\"",  "\"abcdefg\"",    "\"abcdefgh\"",
    "\"\\377\"",  "\"a\\n\"",       "\"tab\\t\"",
    "\"\\001x\"", "\"a\\\"b\\\\\"", "\"abcdefghijklmnopqrstuvwxyz0123456789ABCDEF\""};
constexpr const char* kJsonTexts[] = {R"("{\"a\": [1, {\"b\": \"x\"}], \"c\": null}")",
                                      R"("[[-1.5], {\"a\":{}}, \"\\\"\"]")", R"("{\"a\":")"};
constexpr const char* kPaths[] = {R"("a")",      R"("a[1].b")", R"("c")",
                                  R"("[0][0]")", R"("[1].a")",  R"("[2]")"};
constexpr std::int64_t kValues[] = {0,          1,          -1,        2,         3,
                                    5,          7,          8,         63,        64,
                                    100,        127,        128,       255,       256,
                                    -128,       -129,       32767,     -32768,    65536,
                                    INT32_MAX,  INT32_MIN,  INT64_MAX, INT64_MIN, INT64_MIN + 1,
                                    UINT32_MAX, 0x100000000};
constexpr const char* kBinary[] = {"+",  "-",  "*", "&",  "|", "^",  "<<", ">>", "+", "-",
                                   "==", "!=", "<", "<=", ">", ">=", "&&", "||", "^^"};
constexpr const char* kDividing[] = {"/", "%"};
constexpr const char* kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};
constexpr const char* kThisIntegers[] = {"this->tb", "this->th", "this->ti", "this->tq"};

class Generator {
  // std's distributions differ between libraries; a seed is to mean the same everywhere.
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <typename Range>
  auto pick(const Range& range) {
    return std::data(range)[below(std::size(range))];
  }

 public:
  Generator(std::uint64_t seed, std::uint32_t number) : random_(seed), number_(number) {
    program_.seed = seed;
  }

  RandomProgram make() {
    for (auto& role : roles_) role = static_cast<Role>(below(4));
    declare();
    const std::uint64_t clauses = 1 + below(8) / 4 + below(8) / 7;
    for (std::uint64_t i = 0; i < clauses; ++i) program_.clauses.push_back(clause());
    add_firings(2 + below(5));
    return std::move(program_);
  }

  // The assignments of a clause do not see each other's variables: none hides what another did.
  RandomProgram make_expressions() {
    is_plain_ = true;
    for (auto& role : roles_) role = one_in(2) ? Role::kNumber : Role::kAnyNumber;
    for (const char* place : kThisIntegers) integers_.push_back({place});
    RandomClause made;
    for (std::uint64_t i = 0; i < kExpressionsAProgram; ++i) {
      const std::string name = "v" + new_name();
      program_.declarations.push_back(fmt::format("{} {};", pick(kIntegerTypes), name));
      const char* assign = pick(std::array{"=", "=", "=", "+=", "^="});
      made.statements.push_back(fmt::format("{} {} {}", name, assign, integer(3).text));
    }
    program_.clauses.push_back(made);
    add_firings(8);
    return std::move(program_);
  }

 private:
  enum class Role { kNumber, kAnyNumber, kAddress, kText };

  void add_firings(std::uint64_t count) {
    for (; count != 0; --count) program_.firings.push_back(arguments());
  }

  // ---------------------------------------------------------------------------------- declarations

  std::string new_name() { return fmt::format("{}_{}", number_, names_++); }

  void declare() {
    for (std::uint64_t i = 1 + below(3); i != 0; --i) {
      const bool self = one_in(3);
      const std::string name = "v" + new_name();
      program_.declarations.push_back(
          fmt::format("{}{} {};", self ? "self " : "", pick(kIntegerTypes), name));
      integers_.push_back({(self ? "self->" : "") + name});
    }
    for (std::uint64_t i = below(2); i != 0; --i) {
      const bool self = one_in(3);
      const std::string name = "v" + new_name();
      program_.declarations.push_back(fmt::format("{}string {};", self ? "self " : "", name));
      strings_.push_back({(self ? "self->" : "") + name});
    }
    if (one_in(2)) declare_array(integer_arrays_, pick(kIntegerTypes));
    if (one_in(4)) declare_array(string_arrays_, "string");
    for (const char* place : kThisIntegers) integers_.push_back({place});
    strings_.push_back({"this->ts"});
    for (std::uint64_t i = 1 + below(2); i != 0; --i) declare_aggregation();
  }

  std::vector<std::string> key_types(std::uint64_t count) {
    std::vector<std::string> keys;
    for (; count != 0; --count) keys.emplace_back(one_in(3) ? "string" : pick(kIntegerTypes));
    return keys;
  }

  void declare_array(std::vector<Array>& arrays, const std::string& type) {
    const bool self = one_in(3);
    const std::string name = "v" + new_name();
    const auto keys = key_types(1 + below(2));
    program_.declarations.push_back(
        fmt::format("{}{} {}[{}];", self ? "self " : "", type, name, fmt::join(keys, ", ")));
    arrays.push_back({(self ? "self->" : "") + name, keys});
  }

  void declare_aggregation() {
    static constexpr const char* kFunctions[] = {
        "count", "sum", "min", "max", "avg", "stddev", "quantize", "lquantize", "llquantize"};
    static constexpr const char* kLinear[] = {", 0, 10", ", -5, 100, 7", ", -2147483648, 0, 65535",
                                              ", 0, 5000, 3"};
    static constexpr const char* kLogarithmic[] = {", 10, 0, 3, 10", ", 2, 3, 8, 8",
                                                   ", 10, 1, 4, 5", ", 16, 0, 14, 16"};
    Aggregation made;
    made.name = "@a" + new_name();
    made.function = pick(kFunctions);
    if (made.function == "lquantize") made.parameters = pick(kLinear);
    if (made.function == "llquantize") made.parameters = pick(kLogarithmic);
    made.weighs = made.function.ends_with("quantize");
    // The step of lquantize() stands before its weight.
    if (made.function == "lquantize" && made.parameters == ", 0, 10")
      made.parameters = ", 0, 10, 1";
    made.keys = key_types(below(4));
    aggregations_.push_back(made);
  }

  // ----------------------------------------------------------------------------------- expressions

  Expression literal() {
    if (one_in(4)) return {fmt::format("{}", below(1000)), true};
    return {pick(kCorners), true};
  }
  Expression any_argument() { return {fmt::format("arg{}", below(is_plain_ ? 6 : 10)), false}; }

  Expression leaf() {
    switch (below(8)) {
      case 0:
      case 1:
        return literal();
      case 2:
      case 3:
        return {pick(integers_).place, false};
      case 4:
        return {
            one_in(8) ? pick(std::array{"pid", "ppid", "uid", "gid", "id"}) : pick(integers_).place,
            false};
      default:
        return any_argument();
    }
  }

  static constexpr std::uint64_t kPlainForms = 17;  // of integer expressions: cases of integer()
  static constexpr std::uint64_t kForms = 23;

  Expression integer(int depth) {
    if (depth <= 0) return leaf();
    switch (below(is_plain_ ? kPlainForms : kForms)) {
      case 0:
      case 1:
      case 2:
        return unary(depth);
      case 3:
      case 4:
      case 5:
      case 6:
      case 7:
        return binary(depth);
      case 8:
      case 9:
        return division(depth);
      case 10:
        return {fmt::format("({} ? {} : {})", variable_integer(depth - 1), integer(depth - 1).text,
                            integer(depth - 1).text)};
      case 11:
      case 12: {
        const Expression operand = integer(depth - 1);
        return {fmt::format("(({}){})", pick(kIntegerTypes), operand.text), operand.is_constant};
      }
      case 13:
        return {fmt::format("({})", assignment(depth - 1))};
      case 14:
        return {fmt::format("({})", increment())};
      case 15:
        return {fmt::format("({}, {})", variable_integer(depth - 1), variable_integer(depth - 1))};
      case 16:
        return leaf();
      // What follows reads memory, or calls the runtime.
      case 17:
        return {
            fmt::format("({} {} {})", string(depth - 1), pick(kComparisons), string(depth - 1))};
      case 18:
        return one_in(4) ? Expression{fmt::format("({} {} 0)", string(depth - 1),
                                                  pick(std::array{"==", "!="}))}
                         : Expression{fmt::format("strlen({})", string(depth - 1))};
      case 19:
      case 20:
        if (!integer_arrays_.empty()) return {element(pick(integer_arrays_), depth - 1)};
        return any_argument();
      default:
        return memory(depth);
    }
  }

  // An integer that the front end cannot fold.
  std::string variable_integer(int depth) {
    const Expression made = integer(depth);
    return made.is_constant ? fmt::format("({} + {})", any_argument().text, made.text) : made.text;
  }

  Expression unary(int depth) {
    const Expression operand = integer(depth - 1);
    return {fmt::format("({}({}))", pick(std::array{"-", "~", "!", "+", "-"}), operand.text),
            operand.is_constant};
  }
  Expression binary(int depth) {
    const Expression left = integer(depth - 1);
    const Expression right = integer(depth - 1);
    return {fmt::format("({} {} {})", left.text, pick(kBinary), right.text),
            left.is_constant && right.is_constant};
  }
  // A fault ends the clause: it is not to be the rule; nor to come at all where others share the
  // clause.
  std::string divisor(int depth) {
    if (one_in(4)) return pick(kNonZero);
    return is_plain_ || !one_in(3) ? fmt::format("({} | 1)", variable_integer(depth))
                                   : variable_integer(depth);
  }
  Expression division(int depth) {
    // The one quotient that does not fit would else be too rare.
    if (one_in(10)) {
      return {fmt::format("((int64_t)({} & 0x8000000000000000) {} ({} < {} ? -1 : 3))",
                          any_argument().text, pick(kDividing), any_argument().text,
                          any_argument().text)};
    }
    return {fmt::format("({} {} {})", variable_integer(depth - 1), pick(kDividing),
                        divisor(depth - 1))};
  }

  // An argument whose role it is, where there is one.
  std::string argument_as(Role role) {
    for (std::uint64_t i = 0, first = below(10); i < 10; ++i) {
      if (roles_[(first + i) % 10] == role) return fmt::format("arg{}", (first + i) % 10);
    }
    return any_argument().text;
  }
  std::string address(int depth) {
    if (one_in(20)) return variable_integer(depth);
    const std::string base = argument_as(one_in(4) ? Role::kText : Role::kAddress);
    return one_in(3) ? fmt::format("({} + {})", base, below(20)) : base;
  }
  std::string text_address(int depth) {
    if (one_in(20)) return variable_integer(depth);
    const std::string base = argument_as(Role::kText);
    return one_in(4) ? fmt::format("({} + {})", base, below(4)) : base;
  }

  Expression memory(int depth) {
    const char* type = pick(kIntegerTypes);
    switch (below(6)) {
      case 0:
        return {fmt::format("((struct probed *){})->{}", address(depth - 1),
                            pick(std::array{"c", "s", "u", "q", "h"}))};
      case 1:
        return {fmt::format("(({} *){})[{}]", type, address(depth - 1), below(6))};
      case 2:
        return {fmt::format("(*(({} *)copyin({}, {})))", type, address(depth - 1),
                            one_in(4) ? fmt::format("8 + ({} & 511)", variable_integer(depth - 1))
                                      : std::to_string(8 + below(9)))};
      case 3:
        return {
            fmt::format("(*((({} *)copyin({}, 16)) + {}))", type, address(depth - 1), below(2))};
      default:
        return {fmt::format("(*({} *)({}))", type, address(depth - 1))};
    }
  }

  std::string key(const std::string& type, int depth) {
    if (type == "string") return one_in(2) ? pick(kTexts) : string(depth);
    switch (below(4)) {
      case 0:
        return integer(depth).text;
      case 1:
        return fmt::format("({} & 3)", any_argument().text);
      default:
        return fmt::format("{}", below(3));
    }
  }
  std::string element(const Array& array, int depth) {
    std::vector<std::string> keys;
    for (const auto& type : array.keys) keys.push_back(key(type, depth - 1));
    return fmt::format("{}[{}]", array.place, fmt::join(keys, ", "));
  }

  std::string string(int depth) {
    if (depth <= 0 || one_in(4))
      return one_in(2) ? std::string(pick(kTexts)) : pick(strings_).place;
    switch (below(13)) {
      case 0:
        return pick(std::array{"probefunc", "probemod", "probename", "probeprov", "execname"});
      case 1:
      case 2:
        return fmt::format("strjoin({}, {})", string(depth - 1), string(depth - 1));
      case 3:
      case 4:
        return fmt::format("copyinstr({})", text_address(depth - 1));
      case 5:
        return fmt::format("copyinstr({}, {})", text_address(depth - 1),
                           one_in(2) ? std::to_string(below(30))
                                     : fmt::format("({} & 31)", variable_integer(depth - 1)));
      case 6:
        return fmt::format("stringof({})", text_address(depth - 1));
      case 7:
        return fmt::format("stringof((char *){})", text_address(depth - 1));
      case 8:
        return fmt::format("({} ? {} : {})", variable_integer(depth - 1), string(depth - 1),
                           string(depth - 1));
      case 9:
        return fmt::format("({} = {})", pick(strings_).place, string(depth - 1));
      case 10:
        return fmt::format("json({}, {})", one_in(4) ? string(depth - 1) : pick(kJsonTexts),
                           one_in(4) ? string(depth - 1) : pick(kPaths));
      default:
        if (!string_arrays_.empty()) return element(pick(string_arrays_), depth - 1);
        return pick(strings_).place;
    }
  }

  // ------------------------------------------------------------------------------------ statements

  std::string integer_place(int depth) {
    if (!integer_arrays_.empty() && one_in(3)) return element(pick(integer_arrays_), depth);
    return pick(integers_).place;
  }
  std::string increment() {
    const std::string place = integer_place(1);
    return fmt::format(fmt::runtime(pick(std::array{"{}++", "{}--", "++{}", "--{}"})), place);
  }
  std::string assignment(int depth) {
    const std::string place = integer_place(depth);
    switch (below(4)) {
      case 0:
        return fmt::format("{} {} {}", place,
                           pick(std::array{"+=", "-=", "*=", "&=", "|=", "^=", "<<=", ">>="}),
                           integer(depth).text);
      case 1:
        return fmt::format("{} {} {}", place, pick(std::array{"/=", "%="}), divisor(depth));
      default:
        return fmt::format("{} = {}", place, integer(depth).text);
    }
  }

  std::string aggregate(const Aggregation& aggregation) {
    std::string keys;
    if (!aggregation.keys.empty()) {
      std::vector<std::string> made;
      // The keys of an aggregation have the types of its first use.
      for (const auto& type : aggregation.keys) {
        const std::string value = key(type, 2);
        made.push_back(type == "string" ? value : fmt::format("({})({})", type, value));
      }
      keys = fmt::format("[{}]", fmt::join(made, ", "));
    }
    std::string arguments;
    if (aggregation.function != "count") arguments = integer(2).text + aggregation.parameters;
    if (aggregation.weighs && one_in(3)) arguments += ", " + integer(1).text;
    return fmt::format("{}{} = {}({})", aggregation.name, keys, aggregation.function, arguments);
  }

  std::string print() {
    std::string format;
    std::string values;
    for (std::uint64_t i = 1 + below(3); i != 0; --i) {
      const bool text = one_in(3);
      format += text ? " %s" : pick(std::array{" %d", " %x", " %u"});
      values += ", " + (text ? string(2) : integer(2).text);
    }
    return fmt::format("printf(\"x{}\"{})", format, values);
  }

  std::string statement() {
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return assignment(3);
      case 4:
        return increment();
      case 5:
        return fmt::format("{} = {}", string_place(), string(3));
      case 6:
        return fmt::format("{} = 0", integer_place(2));
      case 7:
      case 8:
      case 9:
        return fmt::format("trace({})", integer(3).text);
      case 10:
        return fmt::format("trace({})", string(3));
      case 11:
        return print();
      case 12:
        return one_in(4) ? fmt::format("exit({})", integer(2).text)
                         : fmt::format("trace({})", integer(4).text);
      default:
        if (!aggregations_.empty()) return aggregate(pick(aggregations_));
        return assignment(3);
    }
  }
  std::string string_place() {
    if (!string_arrays_.empty() && one_in(2)) return element(pick(string_arrays_), 2);
    return pick(strings_).place;
  }

  RandomClause clause() {
    RandomClause made;
    if (one_in(4)) made.predicate = integer(2).text;
    if (one_in(40)) return made;  // the default action
    for (std::uint64_t i = 1 + below(3); i != 0; --i) made.statements.push_back(statement());
    return made;
  }

  // --------------------------------------------------------------------------------------- firings

  std::uint64_t value_as(Role role) {
    if (one_in(30)) return random_();
    switch (role) {
      case Role::kNumber:
        return below(16);
      case Role::kAnyNumber:
        break;
      case Role::kAddress:
        if (one_in(20))
          return pick(std::array<std::uint64_t, 6>{0, 1, Memory::kEnd, Memory::kStart - 1,
                                                   Memory::kEnd - 4, ~std::uint64_t{0}});
        return Memory::kStart + below(Memory::kSize - 64);
      case Role::kText:
        if (one_in(20))
          return pick(std::array<std::uint64_t, 5>{0, Memory::kEnd, Memory::kUnterminated,
                                                   Memory::kEnd - 1, 0xffff800000000000});
        return Memory::kStart + below(Memory::texts().size()) * Memory::kTextStride;
    }
    return one_in(3) ? random_() >> below(64) : static_cast<std::uint64_t>(pick(kValues));
  }
  Arguments arguments() {
    Arguments made{};
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = value_as(roles_[i]);
    return made;
  }

  std::mt19937_64 random_;
  std::uint32_t number_;
  RandomProgram program_;
  std::uint32_t names_ = 0;
  bool is_plain_ = false;  // see Kind::kExpressions
  std::array<Role, 10> roles_{};
  std::vector<Scalar> integers_;
  std::vector<Scalar> strings_;
  std::vector<Array> integer_arrays_;
  std::vector<Array> string_arrays_;
  std::vector<Aggregation> aggregations_;
};

}  // namespace

const std::vector<std::string>& Memory::texts() {
  static const std::vector<std::string> kAll = {"",
                                                "a",
                                                "ab",
                                                "abc",
                                                "abd",
                                                "b",
                                                "malloc",
                                                "entry",
                                                "abcdefg",
                                                "abcdefgh",
                                                "abcdefghi",
                                                std::string(31, 'x'),
                                                std::string(63, 'y'),
                                                "\xff\x80",
                                                "a\nb",
                                                "%s"};
  return kAll;
}

bool Memory::map() {
  const std::uint64_t page = 4096;
  void* at = ::mmap(reinterpret_cast<void*>(kStart - page), kSize + 2 * page, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == MAP_FAILED) return false;
  auto* bytes = reinterpret_cast<unsigned char*>(kStart);
  if (::mprotect(bytes, kSize, PROT_READ | PROT_WRITE) != 0) return false;
  std::mt19937_64 random(1);
  for (std::uint64_t i = 0; i < kSize; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes + i, &word, 8);
  }
  for (std::size_t i = 0; i < texts().size(); ++i) {
    std::memcpy(bytes + i * kTextStride, texts()[i].c_str(), texts()[i].size() + 1);
  }
  std::memset(reinterpret_cast<void*>(kUnterminated), 'u', kEnd - kUnterminated);
  // A text of several hundred bytes that crosses the boundary of two pages.
  std::memset(bytes + page - 200, 'z', 400);
  return ::mprotect(bytes, kSize, PROT_READ) == 0;
}

std::string shared_declarations() {
  return "struct probed { char c; short s : 5; unsigned int u : 11; short h; long long q; };\n"
         "this int8_t tb;\nthis uint16_t th;\nthis int ti;\nthis uint64_t tq;\nthis string ts;\n";
}

RandomProgram make_random_program(std::uint64_t seed, std::uint32_t number, Kind kind) {
  Generator generator(seed, number);
  return kind == Kind::kWhole ? generator.make() : generator.make_expressions();
}

std::string to_text(const RandomProgram& program, std::uint32_t number) {
  std::string text;
  for (const auto& declaration : program.declarations) text += declaration + "\n";
  for (const RandomClause& clause : program.clauses) {
    text += fmt::format("agree{}:::\n", number);
    if (!clause.predicate.empty()) text += fmt::format("/{}/\n", clause.predicate);
    text += "{\n";
    for (const auto& statement : clause.statements) text += "  " + statement + ";\n";
    text += "}\n";
  }
  return text;
}

}  // namespace trapline::session::test
