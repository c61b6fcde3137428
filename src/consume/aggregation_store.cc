#include "consume/aggregation_store.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

#include "consume/histogram.h"
#include "consume/statistics.h"

namespace trapline::consume {
namespace {

using plan::AggregationKind;

std::int64_t add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

Datum identity(AggregationKind kind) {
  Datum out;
  if (kind == AggregationKind::kMin) out.value = std::numeric_limits<std::int64_t>::max();
  if (kind == AggregationKind::kMax) out.value = std::numeric_limits<std::int64_t>::min();
  return out;
}

void add_words(const plan::Aggregation& aggregation, std::span<const std::uint64_t> words,
               Datum& datum) {
  const auto word = [&](std::size_t i) { return static_cast<std::int64_t>(words[i]); };
  switch (aggregation.kind) {
    case AggregationKind::kCount:
      datum.count = add(datum.count, word(0));
      return;
    case AggregationKind::kSum:
      datum.value = add(datum.value, word(0));
      return;
    case AggregationKind::kMin:
      datum.value = std::min(datum.value, word(0));
      return;
    case AggregationKind::kMax:
      datum.value = std::max(datum.value, word(0));
      return;
    case AggregationKind::kAvg:
    case AggregationKind::kStddev:
      datum.count = add(datum.count, word(0));
      datum.value = add(datum.value, word(1));
      if (aggregation.kind == AggregationKind::kStddev) {
        datum.squares += (static_cast<unsigned __int128>(words[3]) << 64) | words[2];
      }
      return;
    default:
      for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] != 0) datum.add_to_bin(static_cast<std::uint32_t>(i), word(i));
      }
  }
}

std::size_t expected_words(const plan::Aggregation& aggregation) {
  switch (aggregation.kind) {
    case AggregationKind::kAvg:
      return 2;
    case AggregationKind::kStddev:
      return 4;
    case AggregationKind::kQuantize:
    case AggregationKind::kLquantize:
    case AggregationKind::kLlquantize:
      return aggregation.sparse ? 1 : aggregation.bins;
    default:
      return 1;
  }
}

void add_value(const plan::Aggregation& aggregation, std::int64_t value, std::int64_t weight,
               Datum& datum) {
  const auto raw = static_cast<std::uint64_t>(value);
  if (is_histogram(aggregation.kind)) {
    datum.add_to_bin(bin_of(aggregation, value), weight);
    return;
  }
  if (aggregation.kind == AggregationKind::kStddev) {
    const std::uint64_t size = value < 0 ? 0 - raw : raw;
    const unsigned __int128 square = static_cast<unsigned __int128>(size) * size;
    const std::uint64_t words[] = {1, raw, static_cast<std::uint64_t>(square),
                                   static_cast<std::uint64_t>(square >> 64)};
    add_words(aggregation, words, datum);
    return;
  }
  if (aggregation.kind == AggregationKind::kAvg) {
    const std::uint64_t words[] = {1, raw};
    add_words(aggregation, words, datum);
    return;
  }
  const std::uint64_t words[] = {raw};
  add_words(aggregation, words, datum);
}

void add_datum(const plan::Aggregation& aggregation, const Datum& from, Datum& to) {
  to.count = add(to.count, from.count);
  to.squares += from.squares;
  if (aggregation.kind == AggregationKind::kMin) {
    to.value = std::min(to.value, from.value);
  } else if (aggregation.kind == AggregationKind::kMax) {
    to.value = std::max(to.value, from.value);
  } else {
    to.value = add(to.value, from.value);
  }
  for (const auto& [bin, weight] : from.bins) to.add_to_bin(bin, weight);
}

}  // namespace

std::int64_t Datum::bin(std::uint32_t index) const {
  const auto at = std::lower_bound(bins.begin(), bins.end(), index,
                                   [](const auto& entry, auto i) { return entry.first < i; });
  return at != bins.end() && at->first == index ? at->second : 0;
}

void Datum::add_to_bin(std::uint32_t index, std::int64_t weight) {
  const auto at = std::lower_bound(bins.begin(), bins.end(), index,
                                   [](const auto& entry, auto i) { return entry.first < i; });
  if (at == bins.end() || at->first != index) {
    if (weight != 0) bins.insert(at, {index, weight});
    return;
  }
  at->second = add(at->second, weight);
  if (at->second == 0) bins.erase(at);
}

std::size_t AggregationStore::KeyHash::operator()(
    std::span<const std::uint64_t> key) const noexcept {
  std::uint64_t hash = key.size();
  for (const std::uint64_t word : key) {
    hash = (std::rotl(hash, 29) ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash;
}

bool AggregationStore::KeyEqual::operator()(std::span<const std::uint64_t> a,
                                            std::span<const std::uint64_t> b) const noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

AggregationStore::AggregationStore(const plan::Program& program)
    : program_(&program), states_(program.aggregations.size()) {}

AggregationStore::Stored* AggregationStore::find_or_add(std::uint32_t aggregation,
                                                        std::span<const std::uint64_t> key) {
  Entries& entries = states_[aggregation].entries;
  if (const auto found = entries.find(key); found != entries.end()) return &found->second;
  const plan::Aggregation& plan = program_->aggregations[aggregation];
  auto components = decode_key(std::span(plan.keys).first(plan::printed_keys(plan)), key);
  if (!components) return nullptr;
  auto [at, added] = entries.emplace(Key(key.begin(), key.end()),
                                     Stored{std::move(*components), identity(plan.kind), {}});
  return &at->second;
}

Datum AggregationStore::initial(AggregationKind kind) { return identity(kind); }

AggregationStore::Places AggregationStore::places(std::uint32_t aggregation,
                                                  std::span<const std::uint64_t> key) {
  const plan::Aggregation& plan = program_->aggregations[aggregation];
  if (!plan.per_processor) {
    Stored* stored = find_or_add(aggregation, key);
    return stored == nullptr ? Places{} : Places{&stored->datum, nullptr};
  }
  if (key.empty() || key.back() >= program_->processors) return {};
  Stored* stored = find_or_add(aggregation, key.first(key.size() - 1));
  if (stored == nullptr) return {};
  const auto number = static_cast<std::uint32_t>(key.back());
  const auto [place, added] = stored->by_processor.try_emplace(number, identity(plan.kind));
  return {&stored->datum, &place->second};
}

bool AggregationStore::update(std::uint32_t aggregation, std::span<const std::uint64_t> key,
                              std::int64_t value, std::int64_t weight) {
  if (aggregation >= states_.size()) return false;
  const Places at = places(aggregation, key);
  if (at.whole == nullptr) return false;
  const plan::Aggregation& plan = program_->aggregations[aggregation];
  add_value(plan, value, weight, *at.whole);
  if (at.processor != nullptr) add_value(plan, value, weight, *at.processor);
  return true;
}

bool AggregationStore::merge(std::uint32_t aggregation, std::span<const std::uint64_t> key,
                             std::span<const std::uint64_t> words) {
  if (aggregation >= states_.size()) return false;
  const plan::Aggregation& plan = program_->aggregations[aggregation];
  if (words.size() != expected_words(plan)) return false;
  if (!plan.sparse) {
    const Places at = places(aggregation, key);
    if (at.whole == nullptr) return false;
    add_words(plan, words, *at.whole);
    if (at.processor != nullptr) add_words(plan, words, *at.processor);
    return true;
  }
  if (key.empty() || key.back() >= plan.bins) return false;
  const Places at = places(aggregation, key.first(key.size() - 1));
  if (at.whole == nullptr) return false;
  for (Datum* const datum : {at.whole, at.processor}) {
    if (datum != nullptr)
      datum->add_to_bin(static_cast<std::uint32_t>(key.back()),
                        static_cast<std::int64_t>(words[0]));
  }
  return true;
}

void AggregationStore::absorb(AggregationStore& other) {
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    const plan::Aggregation& plan = program_->aggregations[i];
    for (const auto& [key, from] : other.states_[i].entries) {
      if (Stored* to = find_or_add(i, key)) add_datum(plan, from.datum, to->datum);
    }
    other.states_[i].entries.clear();
  }
}

void AggregationStore::clear(std::uint32_t aggregation) {
  if (aggregation >= states_.size()) return;
  const Datum fresh = identity(program_->aggregations[aggregation].kind);
  for (auto& [key, stored] : states_[aggregation].entries) {
    stored.datum = fresh;
    stored.by_processor.clear();
  }
}

void AggregationStore::truncate(std::uint32_t aggregation, std::optional<std::int64_t> keep) {
  if (aggregation >= states_.size()) return;
  Entries& entries = states_[aggregation].entries;
  const std::int64_t wanted = keep.value_or(0);
  const std::uint64_t count =
      wanted < 0 ? 0 - static_cast<std::uint64_t>(wanted) : static_cast<std::uint64_t>(wanted);
  if (count >= entries.size()) return;
  const plan::Aggregation& plan = program_->aggregations[aggregation];
  std::vector<Entries::iterator> order;
  order.reserve(entries.size());
  for (auto it = entries.begin(); it != entries.end(); ++it) order.push_back(it);
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    int result = compare_values(plan, a->second.datum, b->second.datum);
    if (result == 0) result = compare_keys(a->second.components, b->second.components, 0);
    return wanted < 0 ? result < 0 : result > 0;
  });
  for (std::size_t i = count; i < order.size(); ++i) entries.erase(order[i]);
}

void AggregationStore::normalize(std::uint32_t aggregation, std::uint64_t divisor) {
  if (aggregation < states_.size()) states_[aggregation].normal = divisor == 0 ? 1 : divisor;
}

std::uint64_t AggregationStore::normal(std::uint32_t aggregation) const {
  return aggregation < states_.size() ? states_[aggregation].normal : 1;
}

void AggregationStore::set_printed(std::uint32_t aggregation) {
  if (aggregation < states_.size()) states_[aggregation].printed = true;
}

bool AggregationStore::printed(std::uint32_t aggregation) const {
  return aggregation < states_.size() && states_[aggregation].printed;
}

bool AggregationStore::empty(std::uint32_t aggregation) const {
  return entry_count(aggregation) == 0;
}

std::size_t AggregationStore::entry_count(std::uint32_t aggregation) const {
  return aggregation < states_.size() ? states_[aggregation].entries.size() : 0;
}

std::vector<Row> AggregationStore::rows(std::span<const std::uint32_t> aggregations,
                                        const SortOptions& sort) const {
  std::vector<Row> out;
  std::map<std::span<const std::uint64_t>, std::size_t,
           decltype([](std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
             return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
           })>
      by_key;
  for (std::size_t position = 0; position < aggregations.size(); ++position) {
    if (aggregations[position] >= states_.size()) continue;
    for (const auto& [key, stored] : states_[aggregations[position]].entries) {
      std::size_t at = out.size();
      if (aggregations.size() > 1) at = by_key.try_emplace(key, at).first->second;
      if (at == out.size()) {
        out.push_back({&stored.components, std::vector<const Datum*>(aggregations.size(), nullptr),
                       std::vector<const ByProcessor*>(aggregations.size(), nullptr)});
      }
      out[at].data[position] = &stored.datum;
      out[at].by_processor[position] = &stored.by_processor;
    }
  }

  // A missing value counts as zero, for min and max too.
  static const Datum zero;
  const std::size_t width = aggregations.size();
  const std::size_t first = sort.position < width ? sort.position : 0;
  const auto by_value = [&](const Row& a, const Row& b) {
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t at = (first + i) % width;
      if (aggregations[at] >= states_.size()) continue;
      const Datum& left = a.data[at] != nullptr ? *a.data[at] : zero;
      const Datum& right = b.data[at] != nullptr ? *b.data[at] : zero;
      const int result = compare_values(program_->aggregations[aggregations[at]], left, right);
      if (result != 0) return result;
    }
    return 0;
  };
  std::sort(out.begin(), out.end(), [&](const Row& a, const Row& b) {
    int result = sort.by_key ? 0 : by_value(a, b);
    if (result == 0) result = compare_keys(*a.components, *b.components, sort.key_position);
    return sort.reversed ? result > 0 : result < 0;
  });
  return out;
}

}  // namespace trapline::consume
