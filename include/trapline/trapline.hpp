/// @file trapline.hpp
/// Tracing from within a program: the C++17 face of libtrapline, header only, over trapline.h.
///
/// @code
/// trapline::Session session = trapline::Session::self();
/// session.compile("pid$target::malloc:entry { @sizes = quantize(arg0); }");
/// session.start();
/// work();
/// session.stop();
/// std::cout << session.snapshot();
/// @endcode
///
/// What fails throws trapline::Error. Threads, lifetimes and fork() are as trapline.h says: a
/// Session may be used from any thread, a Snapshot read by any number of them; Aggregation, Entry,
/// Value and Histogram are views into the Snapshot (or Record) they come from, as cheap to copy as
/// a pointer, and must not outlive it. Unless it says so, nothing here allocates in the program's
/// own name, so that a session that watches allocations does not see its own reading.

#pragma once

#include <trapline/trapline.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Trapline.
namespace trapline {
/// The version of the interface; part of every symbol's name.
inline namespace v0 {

/// What went wrong; see ::trapline_error.
enum class ErrorCode {
  kArgument = TRAPLINE_ERROR_ARGUMENT,        ///< An argument is out of range or not UTF-8.
  kCompile = TRAPLINE_ERROR_COMPILE,          ///< The D program has mistakes.
  kState = TRAPLINE_ERROR_STATE,              ///< Not now: no program, already running, ...
  kPermission = TRAPLINE_ERROR_PERMISSION,    ///< The process may not be traced.
  kYama = TRAPLINE_ERROR_YAMA,                ///< Yama forbids it (kernel.yama.ptrace_scope).
  kBusyTracer = TRAPLINE_ERROR_BUSY_TRACER,   ///< Another tracer or a debugger holds the process.
  kNotFound = TRAPLINE_ERROR_NOT_FOUND,       ///< No such process, file, aggregation, key.
  kTargetGone = TRAPLINE_ERROR_TARGET_GONE,   ///< The traced process has ended.
  kUnsupported = TRAPLINE_ERROR_UNSUPPORTED,  ///< Understood, and not offered (yet).
  kOs = TRAPLINE_ERROR_OS,                    ///< A system call failed.
  kMemory = TRAPLINE_ERROR_MEMORY,            ///< Out of memory.
  kNoHelper = TRAPLINE_ERROR_NO_HELPER,       ///< The helper was not found.
  kHelperGone = TRAPLINE_ERROR_HELPER_GONE,   ///< The helper has ended.
  kProtocol = TRAPLINE_ERROR_PROTOCOL,        ///< The helper speaks another protocol.
  kTimeout = TRAPLINE_ERROR_TIMEOUT,          ///< The helper did not answer in time.
  kForked = TRAPLINE_ERROR_FORKED,            ///< The session is the parent process's.
  kType = TRAPLINE_ERROR_TYPE,                ///< The value is of another kind.
  kInternal = TRAPLINE_ERROR_INTERNAL,        ///< A fault of Trapline's own.
};

/// A mistake in a D program, or a warning about it; owns its strings.
struct Diagnostic {
  bool warning = false;      ///< The program runs nevertheless.
  std::uint32_t line = 0;    ///< From 1; 0: about the program as a whole.
  std::uint32_t column = 0;  ///< In bytes from 1; 0: about the line as a whole.
  std::string tag;           ///< DTrace's tag without "D_"; may be empty.
  std::string file;          ///< The program's name, or of a file that it includes.
  std::string text;          ///< The mistake, in one line.
  std::string hint;          ///< What to do about it; may be empty.
};

/// Prints "file:line:column: error: text [TAG]" and the hint on a line of its own.
/// @param out where to
/// @param diagnostic what
/// @return out
inline std::ostream& operator<<(std::ostream& out, const Diagnostic& diagnostic) {
  out << diagnostic.file;
  if (diagnostic.line != 0) out << ':' << diagnostic.line;
  if (diagnostic.column != 0) out << ':' << diagnostic.column;
  out << (diagnostic.warning ? ": warning: " : ": error: ") << diagnostic.text;
  if (!diagnostic.tag.empty()) out << " [" << diagnostic.tag << ']';
  if (!diagnostic.hint.empty()) out << "\n  " << diagnostic.hint;
  return out;
}

/// What is thrown. Allocates.
class Error : public std::runtime_error {
 public:
  /// @param code what went wrong
  /// @param text for people
  /// @param diagnostics of a D program
  Error(ErrorCode code, const std::string& text, std::vector<Diagnostic> diagnostics = {})
      : std::runtime_error(text),
        diagnostics_(std::make_shared<const std::vector<Diagnostic>>(std::move(diagnostics))),
        code_(code) {}

  /// What went wrong.
  /// @return the code
  ErrorCode code() const noexcept { return code_; }
  /// kCompile: all mistakes and warnings, in the order of the source.
  /// @return them; empty with other codes
  const std::vector<Diagnostic>& diagnostics() const noexcept { return *diagnostics_; }

 private:
  std::shared_ptr<const std::vector<Diagnostic>> diagnostics_;
  ErrorCode code_;
};

/// @cond
namespace detail {

inline std::string_view view(trapline_string text) noexcept { return {text.data, text.size}; }
inline std::string copy(trapline_string text) { return {text.data, text.size}; }

[[noreturn]] inline void fail(trapline_error error) {
  throw Error(static_cast<ErrorCode>(error), trapline_error_text());
}
inline void check(trapline_error error) {
  if (error != TRAPLINE_OK) fail(error);
}

template <typename T>
inline constexpr bool is_integer =
    (std::is_integral_v<T> || std::is_enum_v<T>) && !std::is_same_v<T, bool>;

// A component of a key to look for.
template <typename T>
trapline_value to_value(const T& from) noexcept {
  trapline_value value{TRAPLINE_VALUE_INT, 0, {"", 0}};
  if constexpr (is_integer<T>) {
    value.integer = static_cast<std::int64_t>(from);
    if (std::is_unsigned_v<T>) value.type = TRAPLINE_VALUE_UINT;
  } else {
    const std::string_view text(from);
    value.type = TRAPLINE_VALUE_STRING;
    value.bytes = {text.data(), text.size()};
  }
  return value;
}

struct ReportDeleter {
  void operator()(trapline_report* report) const noexcept { trapline_report_destroy(report); }
};
struct SnapshotDeleter {
  void operator()(trapline_snapshot* snapshot) const noexcept {
    trapline_snapshot_destroy(snapshot);
  }
};
struct SessionDeleter {
  void operator()(trapline_session* session) const noexcept { trapline_session_destroy(session); }
};

// begin() and end() of things that are reached by number.
template <typename Range, typename Item>
class IndexIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Item;
  using difference_type = std::ptrdiff_t;
  using pointer = const Item*;
  using reference = Item;

  IndexIterator() = default;
  IndexIterator(Range range, std::size_t index) : range_(range), index_(index) {}
  Item operator*() const { return range_.at_index(index_); }
  IndexIterator& operator++() {
    ++index_;
    return *this;
  }
  IndexIterator operator++(int) {
    IndexIterator before = *this;
    ++index_;
    return before;
  }
  friend bool operator==(const IndexIterator& a, const IndexIterator& b) {
    return a.index_ == b.index_;
  }
  friend bool operator!=(const IndexIterator& a, const IndexIterator& b) { return !(a == b); }

 private:
  Range range_;
  std::size_t index_ = 0;
};

// An array that something else owns.
template <typename T>
class Span {
 public:
  Span() = default;
  Span(const T* data, std::size_t size) : data_(data), size_(size) {}
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const T& operator[](std::size_t index) const { return data_[index]; }

 private:
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace detail
/// @endcond

/// A bin of a histogram: `low` to `high`, both included, and `count`.
using Bucket = trapline_bucket;
/// The bins of a histogram that are not empty, ascending: a range of Bucket.
using Histogram = detail::Span<Bucket>;
/// Lost data, by the place of the loss.
using Drops = trapline_drops;
/// What avg() and stddev() keep.
using Statistics = trapline_statistics;

/// Whether anything was lost.
/// @param drops the losses
/// @return their sum
inline std::uint64_t total(const Drops& drops) noexcept {
  return drops.record + drops.aggregation + drops.dynamic + drops.speculation + drops.speculative +
         drops.level + drops.no_slot + drops.samples + drops.malformed + drops.client;
}

/// What an aggregation computes; see ::trapline_function.
enum class Function {
  kCount = TRAPLINE_FUNCTION_COUNT,            ///< count()
  kSum = TRAPLINE_FUNCTION_SUM,                ///< sum()
  kMin = TRAPLINE_FUNCTION_MIN,                ///< min()
  kMax = TRAPLINE_FUNCTION_MAX,                ///< max()
  kAvg = TRAPLINE_FUNCTION_AVG,                ///< avg()
  kStddev = TRAPLINE_FUNCTION_STDDEV,          ///< stddev()
  kQuantize = TRAPLINE_FUNCTION_QUANTIZE,      ///< quantize()
  kLquantize = TRAPLINE_FUNCTION_LQUANTIZE,    ///< lquantize()
  kLlquantize = TRAPLINE_FUNCTION_LLQUANTIZE,  ///< llquantize()
};

/// What a session is doing; see ::trapline_state.
enum class State {
  kCompiled = TRAPLINE_STATE_COMPILED,  ///< It has a program that has not been started.
  kRunning = TRAPLINE_STATE_RUNNING,    ///< Probes are in place and count.
  kStopped = TRAPLINE_STATE_STOPPED,    ///< Stopped; it can be started again.
  kEnded = TRAPLINE_STATE_ENDED,        ///< Over by itself.
};

/// An integer, a string or bytes: a component of a key, or something recorded. A view.
class Value {
 public:
  /// @param value of the C interface
  explicit Value(const trapline_value& value) noexcept : value_(value) {}

  /// Whether it is an integer.
  /// @return true: integer() and unsigned_integer() have an answer; false: string() has
  bool is_integer() const noexcept {
    return value_.type == TRAPLINE_VALUE_INT || value_.type == TRAPLINE_VALUE_UINT;
  }
  /// The integer. Throws kType if it is none, or too great.
  /// @return the integer
  std::int64_t integer() const {
    if (!is_integer()) throw Error(ErrorCode::kType, "the value is not an integer");
    if (value_.type == TRAPLINE_VALUE_UINT && value_.integer < 0) {
      throw Error(ErrorCode::kType, "the value is greater than a signed integer can be");
    }
    return value_.integer;
  }
  /// The integer. Throws kType if it is none, or negative.
  /// @return the integer
  std::uint64_t unsigned_integer() const {
    if (!is_integer()) throw Error(ErrorCode::kType, "the value is not an integer");
    if (value_.type == TRAPLINE_VALUE_INT && value_.integer < 0) {
      throw Error(ErrorCode::kType, "the value is negative");
    }
    return static_cast<std::uint64_t>(value_.integer);
  }
  /// The string or the bytes. Throws kType if it is an integer.
  /// @return a view
  std::string_view string() const {
    if (is_integer()) throw Error(ErrorCode::kType, "the value is an integer");
    return detail::view(value_.bytes);
  }
  /// As an integral type, std::string_view or std::string (which allocates). Throws kType if it
  /// does not fit.
  /// @tparam T the type wanted
  /// @return the value
  template <typename T>
  T as() const {
    if constexpr (detail::is_integer<T>) {
      return as_integer<T>();
    } else {
      return T(string());
    }
  }
  /// As the C interface has it.
  /// @return the value
  const trapline_value& get() const noexcept { return value_; }

 private:
  template <typename T>
  T as_integer() const {
    if constexpr (std::is_enum_v<T>) {
      return static_cast<T>(as_integer<std::underlying_type_t<T>>());
    } else if constexpr (std::is_unsigned_v<T>) {
      const std::uint64_t value = unsigned_integer();
      if (value > std::numeric_limits<T>::max()) throw Error(ErrorCode::kType, "out of range");
      return static_cast<T>(value);
    } else {
      const std::int64_t value = integer();
      if (value > std::numeric_limits<T>::max() || value < std::numeric_limits<T>::min()) {
        throw Error(ErrorCode::kType, "out of range");
      }
      return static_cast<T>(value);
    }
  }

  trapline_value value_;
};

/// Prints an integer in decimal, a string as it is.
/// @param out where to
/// @param value what
/// @return out
inline std::ostream& operator<<(std::ostream& out, const Value& value) {
  if (!value.is_integer()) return out << value.string();
  if (value.get().type == TRAPLINE_VALUE_UINT) return out << value.unsigned_integer();
  return out << value.integer();
}

/// A key of an aggregation with what belongs to it. A view.
class Entry {
 public:
  /// @param entry of the C interface, not null
  explicit Entry(const trapline_entry* entry) noexcept : entry_(entry) {}

  /// How many components the key has.
  /// @return their number
  std::size_t key_size() const noexcept {
    std::size_t size = 0;
    trapline_entry_key(entry_, &size);
    return size;
  }
  /// A component of the key. Throws kNotFound if there is no such one.
  /// @param index from 0
  /// @return the component
  Value key(std::size_t index) const {
    std::size_t size = 0;
    const trapline_value* components = trapline_entry_key(entry_, &size);
    if (index >= size) throw Error(ErrorCode::kNotFound, "the key has no such component");
    return Value(components[index]);
  }
  /// A component of the key as a type; see Value::as().
  /// @tparam T an integral type, std::string_view or std::string
  /// @param index from 0
  /// @return the component
  template <typename T>
  T key(std::size_t index) const {
    return key(index).template as<T>();
  }
  /// All components: `auto [name, line] = entry.keys<std::string_view, int>();`. Throws kType if
  /// there are more or fewer.
  /// @tparam Types of each component
  /// @return a tuple
  template <typename... Types>
  std::tuple<Types...> keys() const {
    if (key_size() != sizeof...(Types)) {
      throw Error(ErrorCode::kType, "the key has another number of components");
    }
    return keys_at<Types...>(std::index_sequence_for<Types...>());
  }
  /// The number that count(), sum(), min(), max(), avg() and stddev() make. Throws kType for
  /// histograms, and for what is greater than the type can hold.
  /// @tparam T an integral type
  /// @return the number
  template <typename T = std::int64_t>
  T value() const {
    trapline_value value{};
    detail::check(trapline_entry_value(entry_, &value));
    return Value(value).template as<T>();
  }
  /// What avg() and stddev() keep. Throws kType for others.
  /// @return count, sum, and sum of squares
  Statistics statistics() const {
    Statistics statistics{};
    detail::check(trapline_entry_statistics(entry_, &statistics));
    return statistics;
  }
  /// The bins of quantize(), lquantize(), llquantize().
  /// @return those that are not empty, ascending; empty for other functions
  Histogram histogram() const noexcept {
    std::size_t count = 0;
    const Bucket* buckets = trapline_entry_buckets(entry_, &count);
    return {buckets, count};
  }

 private:
  template <typename... Types, std::size_t... Indices>
  std::tuple<Types...> keys_at(std::index_sequence<Indices...>) const {
    return {key<Types>(Indices)...};
  }

  const trapline_entry* entry_;
};

/// One aggregation: a range of Entry, in the order in which the command prints them. A view.
class Aggregation {
 public:
  /// Of begin() and end().
  using iterator = detail::IndexIterator<Aggregation, Entry>;

  /// An empty one; of no use but to be assigned to.
  Aggregation() = default;
  /// @param aggregation of the C interface, not null
  explicit Aggregation(const trapline_aggregation* aggregation) noexcept
      : aggregation_(aggregation) {}

  /// Its name without '@'.
  /// @return a view
  std::string_view name() const noexcept {
    return detail::view(trapline_aggregation_name(aggregation_));
  }
  /// What it computes.
  /// @return the function
  v0::Function function() const noexcept {
    return static_cast<v0::Function>(trapline_aggregation_function(aggregation_));
  }
  /// The divisor that normalize() set; values are not divided by it.
  /// @return 1: none
  std::uint64_t normal() const noexcept { return trapline_aggregation_normal(aggregation_); }
  /// How many components keys have.
  /// @return 0: no keys, at most one entry
  std::size_t key_size() const noexcept { return trapline_aggregation_key_size(aggregation_); }
  /// How many entries there are.
  /// @return their number
  std::size_t size() const noexcept { return trapline_aggregation_size(aggregation_); }
  /// Whether nothing was written to it.
  /// @return size() == 0
  bool empty() const noexcept { return size() == 0; }
  /// The first entry.
  /// @return an iterator
  iterator begin() const noexcept { return {*this, 0}; }
  /// Past the last entry.
  /// @return an iterator
  iterator end() const noexcept { return {*this, size()}; }

  /// The entry with a key: `snapshot["calls"].find("malloc", 16)`. Looks through all entries.
  /// @param keys its components: integers and what a string_view can be made of
  /// @return nothing: no such key has been written
  template <typename... Keys>
  std::optional<Entry> find(const Keys&... keys) const noexcept {
    const std::array<trapline_value, sizeof...(Keys) + 1> key{detail::to_value(keys)...,
                                                              trapline_value{}};
    const trapline_entry* entry =
        trapline_aggregation_find(aggregation_, key.data(), sizeof...(Keys));
    return entry != nullptr ? std::optional<Entry>(Entry(entry)) : std::nullopt;
  }
  /// The number of the entry with a key, or of the only one. A count or sum that was never
  /// written is 0; min(), max() and avg() of nothing throw kNotFound. Throws kType for histograms
  /// and for a wrong number of keys.
  /// @param keys as find()
  /// @return the number
  template <typename... Keys>
  std::int64_t value(const Keys&... keys) const {
    check_keys(sizeof...(Keys));
    if (const std::optional<Entry> entry = find(keys...)) return entry->value();
    if (function() > v0::Function::kStddev) {
      throw Error(ErrorCode::kType, "a histogram has no single value");
    }
    if (function() > v0::Function::kSum) {
      throw Error(ErrorCode::kNotFound, "nothing was recorded");
    }
    return 0;
  }
  /// The histogram of the entry with a key, or of the only one. Throws kType for other functions
  /// and for a wrong number of keys.
  /// @param keys as find()
  /// @return its bins; empty: nothing was recorded
  template <typename... Keys>
  Histogram histogram(const Keys&... keys) const {
    check_keys(sizeof...(Keys));
    if (function() < v0::Function::kQuantize) {
      throw Error(ErrorCode::kType, "the aggregation is no histogram");
    }
    if (const std::optional<Entry> entry = find(keys...)) return entry->histogram();
    return {};
  }

  /// An entry by number, for iterators.
  /// @param index below size()
  /// @return the entry
  Entry at_index(std::size_t index) const noexcept {
    return Entry(trapline_aggregation_entry(aggregation_, index));
  }

 private:
  void check_keys(std::size_t count) const {
    if (count != key_size()) {
      throw Error(ErrorCode::kType, "the aggregation's keys have another number of components");
    }
  }

  const trapline_aggregation* aggregation_ = nullptr;
};

/// All aggregations of a session at one moment: owns them, a range of Aggregation. Can be moved.
class Snapshot {
 public:
  /// Of begin() and end().
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;  ///< Reads once.
    using value_type = Aggregation;                     ///< What it yields.
    using difference_type = std::ptrdiff_t;             ///< As usual.
    using pointer = const Aggregation*;                 ///< As usual.
    using reference = Aggregation;                      ///< A view, by value.
    /// @param snapshot whose
    /// @param index from 0
    iterator(const trapline_snapshot* snapshot, std::size_t index) noexcept
        : snapshot_(snapshot), index_(index) {}
    /// @return the aggregation
    Aggregation operator*() const noexcept {
      return Aggregation(trapline_snapshot_aggregation(snapshot_, index_));
    }
    /// @return the iterator, one further
    iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    /// @return the iterator as it was
    iterator operator++(int) noexcept { return {snapshot_, index_++}; }
    /// @param other of the same snapshot
    /// @return whether both are at the same place
    bool operator==(const iterator& other) const noexcept { return index_ == other.index_; }
    /// @param other of the same snapshot
    /// @return whether they are at different places
    bool operator!=(const iterator& other) const noexcept { return index_ != other.index_; }

   private:
    const trapline_snapshot* snapshot_;
    std::size_t index_;
  };

  /// @param snapshot of the C interface, not null; owned from now on
  explicit Snapshot(trapline_snapshot* snapshot) noexcept : snapshot_(snapshot) {}

  /// An aggregation. Throws kNotFound if the program has none of this name.
  /// @param name without '@'
  /// @return a view into this snapshot
  Aggregation operator[](std::string_view name) const& {
    if (const std::optional<Aggregation> found = find(name)) return *found;
    throw Error(ErrorCode::kNotFound, "no aggregation @" + std::string(name));
  }
  /// A view must not outlive its snapshot: keep the snapshot in a variable, or use value().
  Aggregation operator[](std::string_view name) const&& = delete;
  /// An aggregation, if there is one of this name.
  /// @param name without '@'
  /// @return a view into this snapshot, or nothing
  std::optional<Aggregation> find(std::string_view name) const& noexcept {
    const trapline_aggregation* found =
        trapline_snapshot_find(snapshot_.get(), name.data(), name.size());
    return found != nullptr ? std::optional<Aggregation>(Aggregation(found)) : std::nullopt;
  }
  /// A view must not outlive its snapshot.
  std::optional<Aggregation> find(std::string_view name) const&& = delete;
  /// `session.snapshot().value("calls")`: see Aggregation::value().
  /// @param name of the aggregation
  /// @param keys of the entry
  /// @return the number
  template <typename... Keys>
  std::int64_t value(std::string_view name, const Keys&... keys) const {
    const Snapshot& self = *this;
    return self[name].value(keys...);
  }
  /// How many aggregations there are.
  /// @return their number
  std::size_t size() const noexcept { return trapline_snapshot_size(snapshot_.get()); }
  /// The first aggregation, in the order of the program.
  /// @return an iterator
  iterator begin() const noexcept { return {snapshot_.get(), 0}; }
  /// Past the last aggregation.
  /// @return an iterator
  iterator end() const noexcept { return {snapshot_.get(), size()}; }
  /// What the command would print. Empty if it was not asked for.
  /// @return a view into this snapshot
  std::string_view text() const noexcept {
    return detail::view(trapline_snapshot_text(snapshot_.get()));
  }
  /// What the session was doing.
  /// @return its state
  State state() const noexcept {
    return static_cast<State>(trapline_snapshot_state(snapshot_.get()));
  }
  /// What had been lost since the program was compiled.
  /// @return the losses
  Drops drops() const noexcept { return trapline_snapshot_drops(snapshot_.get()); }

 private:
  std::unique_ptr<trapline_snapshot, detail::SnapshotDeleter> snapshot_;
};

/// Prints what the command would print.
/// @param out where to
/// @param snapshot what
/// @return out
inline std::ostream& operator<<(std::ostream& out, const Snapshot& snapshot) {
  return out << snapshot.text();
}

/// A place that matched but could not be probed. A view into its Report.
struct Refusal {
  std::string_view probe;     ///< As "pid4711:libc.so.6:f:entry".
  std::uint64_t address = 0;  ///< In the traced process.
  std::string_view reason;    ///< Short and the same for all refusals of a kind.
  std::string_view detail;    ///< More about this one.
};

/// What compiling, starting or stopping had to say. Its lists allocate when they are asked for.
class Report {
 public:
  /// @param report of the C interface, not null; owned from now on
  explicit Report(trapline_report* report) noexcept : report_(report) {}

  /// How many probes matched (of compiling) or how many places are armed (of starting).
  /// @return their number
  std::uint64_t probes() const noexcept { return trapline_report_probes(report_.get()); }
  /// Of compiling: warnings.
  /// @return them, in the order of the source
  std::vector<Diagnostic> diagnostics() const {
    std::size_t count = 0;
    const trapline_diagnostic* from = trapline_report_diagnostics(report_.get(), &count);
    std::vector<Diagnostic> result;
    result.reserve(count);
    for (const trapline_diagnostic* d = from; d != from + count; ++d) {
      result.push_back({d->severity == TRAPLINE_SEVERITY_WARNING, d->line, d->column,
                        detail::copy(d->tag), detail::copy(d->file), detail::copy(d->text),
                        detail::copy(d->hint)});
    }
    return result;
  }
  /// Of starting: places that could not be probed.
  /// @return views into this report
  std::vector<Refusal> refusals() const {
    std::size_t count = 0;
    const trapline_refusal* from = trapline_report_refusals(report_.get(), &count);
    std::vector<Refusal> result;
    result.reserve(count);
    for (const trapline_refusal* r = from; r != from + count; ++r) {
      result.push_back(
          {detail::view(r->probe), r->address, detail::view(r->reason), detail::view(r->detail)});
    }
    return result;
  }
  /// Things that a user should know.
  /// @return a line each, views into this report
  std::vector<std::string_view> notes() const {
    std::size_t count = 0;
    const trapline_string* from = trapline_report_notes(report_.get(), &count);
    std::vector<std::string_view> result;
    result.reserve(count);
    for (const trapline_string* note = from; note != from + count; ++note) {
      result.push_back(detail::view(*note));
    }
    return result;
  }
  /// As the C interface has it.
  /// @return the report, still owned by this object
  const trapline_report* get() const noexcept { return report_.get(); }

 private:
  std::unique_ptr<trapline_report, detail::ReportDeleter> report_;
};

/// What goes with a D program. Owns its strings; allocates.
/// `session.compile(text, Options().set("bufsize", "8m").argument(100));`
class Options {
 public:
  /// Sets a D option that has a value.
  /// @param name as "bufsize"
  /// @param value as "8m"
  /// @return this
  Options& set(std::string name, std::string value) {
    options_.emplace_back(std::move(name), std::move(value));
    return *this;
  }
  /// Switches a D option on.
  /// @param name as "zdefs"
  /// @return this
  Options& set(std::string name) {
    options_.emplace_back(std::move(name), std::nullopt);
    return *this;
  }
  /// Adds a macro argument: the first is $1.
  /// @param text its text ($$1 makes a D string of it)
  /// @return this
  Options& argument(std::string text) {
    arguments_.push_back(std::move(text));
    return *this;
  }
  /// Adds a macro argument.
  /// @param number its value
  /// @return this
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  Options& argument(T number) {
    return argument(std::to_string(number));
  }
  /// What diagnostics call the program.
  /// @param label as "sizes.d"
  /// @return this
  Options& name(std::string label) {
    name_ = std::move(label);
    return *this;
  }

 private:
  friend class Session;

  std::vector<std::pair<std::string, std::optional<std::string>>> options_;
  std::vector<std::string> arguments_;
  std::string name_;
};

/// One recording action of a firing. A view into its Record.
class Action {
 public:
  /// What it is; see ::trapline_action_kind.
  enum class Kind {
    kTrace = TRAPLINE_ACTION_TRACE,    ///< trace() and its like: value().
    kPrintf = TRAPLINE_ACTION_PRINTF,  ///< printf(): text() and values.
    kPrinta = TRAPLINE_ACTION_PRINTA,  ///< printa(): aggregations.
    kExit = TRAPLINE_ACTION_EXIT,      ///< exit(): value() is the status.
  };

  /// @param action of the C interface
  explicit Action(const trapline_action& action) noexcept : action_(&action) {}
  /// What it is.
  /// @return the kind
  Kind kind() const noexcept { return static_cast<Kind>(action_->kind); }
  /// kTrace, kExit.
  /// @return what was recorded
  Value value() const noexcept { return Value(action_->value); }
  /// kPrintf: what the command would print.
  /// @return a view
  std::string_view text() const noexcept { return detail::view(action_->text); }
  /// kPrintf: how many arguments came after the format.
  /// @return their number
  std::size_t size() const noexcept { return action_->value_count; }
  /// kPrintf: an argument. Throws kNotFound if there is no such one.
  /// @param index from 0
  /// @return its value
  Value operator[](std::size_t index) const {
    if (index >= size()) throw Error(ErrorCode::kNotFound, "the record has no such value");
    return Value(action_->values[index]);
  }
  /// kPrinta: how many aggregations were printed.
  /// @return their number
  std::size_t aggregation_count() const noexcept { return action_->aggregation_count; }
  /// kPrinta: an aggregation. Throws kNotFound if there is no such one.
  /// @param index from 0
  /// @return a view
  Aggregation aggregation(std::size_t index) const {
    if (index >= aggregation_count()) {
      throw Error(ErrorCode::kNotFound, "the record has no such aggregation");
    }
    return Aggregation(action_->aggregations[index]);
  }

 private:
  const trapline_action* action_;
};

/// One thing that a session has to tell. Valid only while the callback that got it runs.
class Record {
 public:
  /// What it tells; see ::trapline_record_kind.
  enum class Kind {
    kFiring = TRAPLINE_RECORD_FIRING,  ///< A clause recorded data.
    kFault = TRAPLINE_RECORD_FAULT,    ///< A clause was given up; text().
    kDrops = TRAPLINE_RECORD_DROPS,    ///< Data was lost; drops().
    kNote = TRAPLINE_RECORD_NOTE,      ///< Something that a user should know; text().
    kEnded = TRAPLINE_RECORD_ENDED,    ///< Tracing is over; reason(), status(), text().
  };
  /// Why tracing is over.
  enum class Reason {
    kExit = TRAPLINE_END_EXIT,      ///< The D program called exit(status()).
    kTarget = TRAPLINE_END_TARGET,  ///< The traced process has ended.
    kError = TRAPLINE_END_ERROR,    ///< Tracing failed; text().
  };

  /// @param record of the C interface, not null
  explicit Record(const trapline_record* record) noexcept : record_(record) {}
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  /// What it tells.
  /// @return the kind
  Kind kind() const noexcept { return static_cast<Kind>(trapline_record_get_kind(record_)); }
  /// kFiring: how many actions the clause recorded.
  /// @return their number
  std::size_t size() const noexcept { return actions().size(); }
  /// kFiring: an action of the clause. Throws kNotFound if there is no such one.
  /// @param index from 0, in the clause's order
  /// @return the action
  Action operator[](std::size_t index) const {
    const auto all = actions();
    if (index >= all.size()) throw Error(ErrorCode::kNotFound, "the record has no such action");
    return Action(all[index]);
  }
  /// kFiring, kFault: the function in which the probe fired.
  /// @return as "malloc"; empty for other kinds
  std::string_view function() const noexcept { return part(&trapline_probe::function); }
  /// kFiring, kFault: the module in which the probe fired.
  /// @return as "libc.so.6"; empty for other kinds
  std::string_view module() const noexcept { return part(&trapline_probe::module); }
  /// kFiring, kFault: the probe's provider.
  /// @return as "pid4711"; empty for other kinds
  std::string_view provider() const noexcept { return part(&trapline_probe::provider); }
  /// kFiring, kFault: the probe's name.
  /// @return as "entry"; empty for other kinds
  std::string_view name() const noexcept { return part(&trapline_probe::name); }
  /// kFiring: when.
  /// @return time since the epoch of CLOCK_MONOTONIC (which is std::chrono::steady_clock's)
  std::chrono::nanoseconds time() const noexcept {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(trapline_record_time(record_)));
  }
  /// kFiring: the thread.
  /// @return its id, as gettid() gives it
  int tid() const noexcept { return trapline_record_tid(record_); }
  /// kFiring: the CPU.
  /// @return its number
  int cpu() const noexcept { return trapline_record_cpu(record_); }
  /// kFault, kNote, kEnded: the message. kFiring: the text of the first printf(), or "".
  /// @return a view
  std::string_view text() const noexcept {
    for (const trapline_action& action : actions()) {
      if (action.kind == TRAPLINE_ACTION_PRINTF) return detail::view(action.text);
    }
    return detail::view(trapline_record_text(record_));
  }
  /// kDrops: what was lost since the last record of this kind.
  /// @return the losses
  Drops drops() const noexcept { return trapline_record_drops(record_); }
  /// kEnded: why.
  /// @return the reason
  Reason reason() const noexcept {
    return static_cast<Reason>(trapline_record_end(record_, nullptr));
  }
  /// kEnded: what exit() was given, or the exit status of a launched program.
  /// @return the status
  int status() const noexcept {
    int status = 0;
    trapline_record_end(record_, &status);
    return status;
  }
  /// As the C interface has it.
  /// @return the record
  const trapline_record* get() const noexcept { return record_; }

 private:
  detail::Span<trapline_action> actions() const noexcept {
    std::size_t count = 0;
    const trapline_action* actions = trapline_record_actions(record_, &count);
    return {actions, count};
  }
  std::string_view part(trapline_string trapline_probe::* member) const noexcept {
    const trapline_probe* probe = trapline_record_probe(record_);
    return probe != nullptr ? detail::view(probe->*member) : std::string_view();
  }

  const trapline_record* record_;
};

/// Whether what clauses record (printf(), trace(), ...) is delivered.
enum class Records : unsigned {
  kIgnored = 0,                   ///< Only aggregations are of interest.
  kDelivered = TRAPLINE_RECORDS,  ///< To on_record() or dispatch().
};

/// Whether a snapshot has the text that the command would print.
enum class Text : unsigned {
  kNone = 0,                           ///< Saves some time with very many keys.
  kIncluded = TRAPLINE_SNAPSHOT_TEXT,  ///< For operator<<.
};

/// A traced process and the D program it is traced with. Can be moved. Its end stops tracing and
/// leaves the process as it was.
class Session {
 public:
  /// A session that traces this very process; see trapline_session_self().
  /// @param records whether what clauses record is wanted
  /// @return the session
  static Session self(Records records = Records::kIgnored) {
    trapline_session* session = nullptr;
    detail::check(trapline_session_self(static_cast<unsigned>(records), &session));
    return Session(session);
  }
  /// A session that traces another process; see trapline_session_attach().
  /// @param pid its id
  /// @param records whether what clauses record is wanted
  /// @return the session
  static Session attach(int pid, Records records = Records::kIgnored) {
    trapline_session* session = nullptr;
    detail::check(trapline_session_attach(pid, static_cast<unsigned>(records), &session));
    return Session(session);
  }
  /// Starts a program in order to trace it; see trapline_session_launch(). It waits for start().
  /// @param arguments the program and its arguments
  /// @param records whether what clauses record is wanted
  /// @return the session
  static Session launch(const std::vector<std::string>& arguments,
                        Records records = Records::kIgnored) {
    std::vector<const char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
    pointers.push_back(nullptr);
    trapline_session* session = nullptr;
    detail::check(
        trapline_session_launch(pointers.data(), static_cast<unsigned>(records), &session));
    return Session(session);
  }

  /// Compiles a D program in place of the one before; see trapline_session_compile_program().
  /// Throws kCompile, with diagnostics(), if it has mistakes.
  /// @param text the program
  /// @param options D options, macro arguments, a name
  /// @return how many probes matched, and warnings
  Report compile(std::string_view text, const Options& options = {}) {
    std::vector<const char*> arguments;
    for (const std::string& argument : options.arguments_) arguments.push_back(argument.c_str());
    std::vector<trapline_option> list;
    for (const auto& [name, value] : options.options_) {
      list.push_back({name.c_str(), value ? value->c_str() : nullptr});
    }
    trapline_program program = TRAPLINE_PROGRAM_INIT;
    program.text = text.data();
    program.text_size = text.size();
    program.name = options.name_.empty() ? nullptr : options.name_.c_str();
    program.arguments = arguments.data();
    program.argument_count = arguments.size();
    program.options = list.data();
    program.option_count = list.size();
    trapline_report* result = nullptr;
    const trapline_error error =
        trapline_session_compile_program(session_.get(), &program, &result);
    if (error == TRAPLINE_OK) return Report(result);
    if (result == nullptr) detail::fail(error);
    throw Error(static_cast<ErrorCode>(error), trapline_error_text(), Report(result).diagnostics());
  }
  /// Puts the probes in place; when it returns, they count. See trapline_session_start().
  /// @return how many places are armed, and which were refused
  Report start() {
    trapline_report* report = nullptr;
    detail::check(trapline_session_start(session_.get(), &report));
    return Report(report);
  }
  /// Takes the probes away; see trapline_session_stop().
  /// @return notes
  Report stop() {
    trapline_report* report = nullptr;
    detail::check(trapline_session_stop(session_.get(), &report));
    return Report(report);
  }
  /// Reads all aggregations, running or not; see trapline_session_snapshot().
  /// @param text whether operator<< is to print it
  /// @return the snapshot; it may outlive the session
  Snapshot snapshot(Text text = Text::kIncluded) const {
    trapline_snapshot* snapshot = nullptr;
    detail::check(
        trapline_session_snapshot(session_.get(), static_cast<unsigned>(text), &snapshot));
    return Snapshot(snapshot);
  }
  /// Sets all aggregations to nothing, running or not.
  void clear() { detail::check(trapline_session_clear(session_.get())); }
  /// Waits until tracing has ended by itself; see trapline_session_wait().
  void wait() { detail::check(trapline_session_wait(session_.get(), -1)); }
  /// The same, for some time at most.
  /// @param limit how long
  /// @return false: tracing goes on
  bool wait(std::chrono::milliseconds limit) {
    const auto count = std::clamp<std::int64_t>(limit.count(), 0, std::numeric_limits<int>::max());
    const trapline_error error = trapline_session_wait(session_.get(), static_cast<int>(count));
    if (error == TRAPLINE_ERROR_TIMEOUT) return false;
    detail::check(error);
    return true;
  }

  /// Has a thread of the library's call a function for each record from now on; see
  /// trapline_session_set_callback(). Allocates.
  /// @param callback called with each Record; empty: no more. What it throws ends the program. It
  ///   must neither call on_record() nor destroy the session
  void on_record(std::function<void(const Record&)> callback) {
    auto next = std::make_unique<std::function<void(const Record&)>>(std::move(callback));
    detail::check(
        trapline_session_set_callback(session_.get(), *next ? call_function : nullptr, next.get()));
    callback_ = std::move(next);
  }
  /// Calls a function for each record that has arrived, without waiting; see
  /// trapline_session_dispatch().
  /// @param callback called with each Record. If it throws, the records that have arrived are
  ///   delivered nevertheless, and what it threw first is thrown again
  template <typename Callback>
  void dispatch(Callback&& callback) {
    Dispatch<Callback> call{&callback, nullptr};
    const trapline_error error =
        trapline_session_dispatch(session_.get(), Dispatch<Callback>::call, &call);
    if (call.thrown) std::rethrow_exception(call.thrown);
    detail::check(error);
  }
  /// A descriptor that polls readable when dispatch() has something to do.
  /// @return the descriptor, the session's
  int fd() const {
    int fd = -1;
    detail::check(trapline_session_fd(session_.get(), &fd));
    return fd;
  }
  /// The traced process.
  /// @return its id
  int pid() const noexcept { return trapline_session_pid(session_.get()); }
  /// As the C interface has it.
  /// @return the session, still owned by this object
  trapline_session* get() const noexcept { return session_.get(); }

 private:
  template <typename Callback>
  struct Dispatch {
    std::remove_reference_t<Callback>* callback;
    std::exception_ptr thrown;
    static void call(const trapline_record* record, void* user) noexcept {
      auto* self = static_cast<Dispatch*>(user);
      try {
        (*self->callback)(Record(record));
      } catch (...) {
        if (!self->thrown) self->thrown = std::current_exception();
      }
    }
  };

  explicit Session(trapline_session* session) noexcept : session_(session) {}
  static void call_function(const trapline_record* record, void* user) noexcept {
    (*static_cast<std::function<void(const Record&)>*>(user))(Record(record));
  }

  // Destroyed after the session, which may still be calling it.
  std::unique_ptr<std::function<void(const Record&)>> callback_;
  std::unique_ptr<trapline_session, detail::SessionDeleter> session_;
};

}  // namespace v0
}  // namespace trapline
