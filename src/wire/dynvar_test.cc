// Associative arrays under one and under several writers.
//
// Threads alone hardly ever meet in the few instructions that matter. So the races are also played
// through by a scheduler: writers are coroutines that give way before each access to shared memory,
// and chance, from fixed seeds, says who goes on. (What the processor may reorder is not covered.)

namespace {
void (*give_way)() = nullptr;
}
#define TRAPLINE_DYNVAR_STEP() (give_way != nullptr ? give_way() : static_cast<void>(0))
#include "wire/dynvar.h"

#include <gtest/gtest.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace trapline::wire {
namespace {

class Table {
 public:
  Table(uint32_t capacity, uint32_t key_bytes, uint32_t value_bytes)
      : cell_size_(dynvar_cell_size(key_bytes, value_bytes)),
        memory_(std::make_unique<uint64_t[]>(uint64_t{capacity} * cell_size_ / 8)),
        table_{reinterpret_cast<unsigned char*>(memory_.get()), capacity, cell_size_, value_bytes} {
  }

  const DynvarTable& operator*() const { return table_; }

  std::vector<uint32_t> states_of(const DynvarKey& key) const {
    std::vector<uint32_t> found;
    for_each([&](const DynvarCell& cell, const uint64_t* words) {
      const auto state = static_cast<uint32_t>(cell.state & 7);
      if (state == kCellEmpty || state == kCellTombstone || cell.key_size != key.count * 8) return;
      if (std::equal(words, words + key.count, key.words)) found.push_back(state);
    });
    return found;
  }
  unsigned count(CellState state) const {
    unsigned n = 0;
    for_each(
        [&](const DynvarCell& cell, const uint64_t*) { n += (cell.state & 7) == state ? 1 : 0; });
    return n;
  }

 private:
  template <typename Visit>
  void for_each(Visit visit) const {
    for (uint32_t i = 0; i < table_.capacity; ++i) {
      const auto* cell =
          reinterpret_cast<const DynvarCell*>(table_.cells + uint64_t{i} * cell_size_);
      visit(*cell, reinterpret_cast<const uint64_t*>(cell + 1));
    }
  }

  uint32_t cell_size_;
  std::unique_ptr<uint64_t[]> memory_;
  DynvarTable table_;
};

DynvarKey key_of(const uint64_t* words, uint32_t count = 1) {
  return {words, count, hash_key(words, count, 0)};
}

TEST(Dynvar, AgreesWithAMap) {
  Table table(256, 16, 8);
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> model;
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t words[2] = {random() % 10, random() % 10};
    const auto key = key_of(words, 2);
    const auto in_model = model.find({words[0], words[1]});
    uint64_t value = random() | 1;
    switch (random() % 3) {
      case 0:
        ASSERT_EQ(dynvar_store(*table, key, &value, DynvarForm::kBytes), DynvarResult::kDone);
        model[{words[0], words[1]}] = value;
        break;
      case 1:
        ASSERT_EQ(dynvar_remove(*table, key),
                  in_model == model.end() ? DynvarResult::kAbsent : DynvarResult::kDone);
        model.erase({words[0], words[1]});
        break;
      default: {
        uint64_t loaded = 0;
        const auto result = dynvar_load(*table, key, &loaded, DynvarForm::kBytes);
        ASSERT_EQ(result, in_model == model.end() ? DynvarResult::kAbsent : DynvarResult::kDone);
        if (in_model != model.end()) {
          ASSERT_EQ(loaded, in_model->second);
        }
      }
    }
  }
  EXPECT_EQ(table.count(kCellFull), model.size());
}

TEST(Dynvar, AFullTableSaysSoAndTombstonesAreReused) {
  Table table(16, 8, 8);
  for (uint64_t i = 0; i < 16; ++i) {
    ASSERT_EQ(dynvar_store(*table, key_of(&i), &i, DynvarForm::kBytes), DynvarResult::kDone);
  }
  uint64_t more = 99;
  EXPECT_EQ(dynvar_store(*table, key_of(&more), &more, DynvarForm::kBytes), DynvarResult::kFull);
  for (uint64_t round = 0; round < 1000; ++round) {
    const uint64_t old = round == 0 ? 3 : 100 + round - 1;
    const uint64_t fresh = 100 + round;
    ASSERT_EQ(dynvar_remove(*table, key_of(&old)), DynvarResult::kDone);
    ASSERT_EQ(dynvar_store(*table, key_of(&fresh), &fresh, DynvarForm::kBytes),
              DynvarResult::kDone);
  }
  EXPECT_EQ(table.count(kCellFull), 16u);
}

TEST(Dynvar, TextsAreCutAndStayTerminated) {
  Table table(16, 8, 8);
  const uint64_t word = 1;
  char loaded[8];
  EXPECT_EQ(dynvar_store(*table, key_of(&word), "short", DynvarForm::kText), DynvarResult::kDone);
  EXPECT_EQ(dynvar_load(*table, key_of(&word), loaded, DynvarForm::kText), DynvarResult::kDone);
  EXPECT_STREQ(loaded, "short");
  EXPECT_EQ(dynvar_store(*table, key_of(&word), "longer than eight", DynvarForm::kText),
            DynvarResult::kDone);
  EXPECT_EQ(dynvar_load(*table, key_of(&word), loaded, DynvarForm::kText), DynvarResult::kDone);
  EXPECT_STREQ(loaded, "longer ");
}

TEST(Dynvar, ACellWithAStuckWriterCostsADropAndNoMore) {
  Table table(16, 8, 8);
  const uint64_t word = 1;
  uint64_t value = 5;
  ASSERT_EQ(dynvar_store(*table, key_of(&word), &value, DynvarForm::kBytes), DynvarResult::kDone);
  auto* cell = dynvar_detail::find(*table, key_of(&word)).cell;
  cell->state = dynvar_detail::with_state(cell->state, kCellWriting);
  value = 6;
  EXPECT_EQ(dynvar_store(*table, key_of(&word), &value, DynvarForm::kBytes),
            DynvarResult::kContended);
  EXPECT_EQ(dynvar_remove(*table, key_of(&word)), DynvarResult::kContended);
  uint64_t loaded = 0;
  EXPECT_EQ(dynvar_load(*table, key_of(&word), &loaded, DynvarForm::kBytes), DynvarResult::kDone);
  EXPECT_EQ(loaded, 5u);
}

TEST(Dynvar, AStuckInserterCostsADropAndNoMore) {
  Table table(16, 8, 8);
  const uint64_t word = 1;
  uint64_t value = 5;
  ASSERT_EQ(dynvar_store(*table, key_of(&word), &value, DynvarForm::kBytes), DynvarResult::kDone);
  auto* cell = dynvar_detail::find(*table, key_of(&word)).cell;
  cell->state = dynvar_detail::with_state(cell->state, kCellPending);
  EXPECT_EQ(dynvar_load(*table, key_of(&word), &value, DynvarForm::kBytes), DynvarResult::kAbsent);
  EXPECT_EQ(dynvar_store(*table, key_of(&word), &value, DynvarForm::kBytes),
            DynvarResult::kContended);
  EXPECT_EQ(table.count(kCellFull), 0u);
}

// ------------------------------------------------------------------------- chosen interleavings

class Schedule {
 public:
  explicit Schedule(unsigned seed) : random_(seed) {}

  // Runs the writers, as coroutines, to their ends.
  void run(std::vector<std::function<void()>> writers) {
    current_ = this;
    writers_ = std::move(writers);
    contexts_.resize(writers_.size());
    stacks_.assign(writers_.size(), std::vector<char>(kStackSize));
    ended_.assign(writers_.size(), false);
    for (size_t i = 0; i < writers_.size(); ++i) {
      ::getcontext(&contexts_[i]);
      contexts_[i].uc_stack.ss_sp = stacks_[i].data();
      contexts_[i].uc_stack.ss_size = kStackSize;
      contexts_[i].uc_link = &main_;
      ::makecontext(&contexts_[i], &Schedule::start, 0);
    }
    give_way = [] { ::swapcontext(&current_->contexts_[current_->running_], &current_->main_); };
    while (true) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < writers_.size(); ++i) {
        if (!ended_[i]) ready.push_back(i);
      }
      if (ready.empty()) break;
      // Long runs of one writer between short ones reach more than fair turns do.
      if (random_() % 4 != 0 || ended_[running_]) running_ = ready[random_() % ready.size()];
      ::swapcontext(&main_, &contexts_[running_]);
    }
    give_way = nullptr;
  }

 private:
  static constexpr size_t kStackSize = 64 * 1024;
  static void start() {
    current_->writers_[current_->running_]();
    current_->ended_[current_->running_] = true;
  }

  static inline Schedule* current_ = nullptr;
  std::mt19937 random_;
  std::vector<std::function<void()>> writers_;
  std::vector<ucontext_t> contexts_;
  std::vector<std::vector<char>> stacks_;
  std::vector<bool> ended_;
  ucontext_t main_{};
  size_t running_ = 0;
};

constexpr unsigned kSchedules = 800;

bool nothing_left_open(const Table& table) {
  return table.count(kCellClaimed) + table.count(kCellPending) + table.count(kCellWriting) == 0;
}

// Keys that leave make room in front of cells that others have already claimed.
TEST(DynvarSchedules, OneKeyHasOneCell) {
  for (unsigned seed = 0; seed < kSchedules; ++seed) {
    Table table(4, 8, 8);
    for (uint64_t word = 100; word < 103; ++word) {
      ASSERT_EQ(dynvar_store(*table, key_of(&word), &word, DynvarForm::kBytes),
                DynvarResult::kDone);
    }
    const uint64_t word = 7;
    std::vector<uint64_t> stored;
    const auto store = [&](uint64_t value) {
      if (dynvar_store(*table, key_of(&word), &value, DynvarForm::kBytes) == DynvarResult::kDone) {
        stored.push_back(value);
      }
    };
    const auto remove = [&](uint64_t other) { (void)dynvar_remove(*table, key_of(&other)); };
    Schedule(seed).run({[&] { store(1); }, [&] { store(2); }, [&] { store(3); },
                        [&] {
                          remove(100 + seed % 3);
                          remove(100 + (seed + 1) % 3);
                        }});
    const size_t cells = table.states_of(key_of(&word)).size();
    ASSERT_EQ(cells, stored.empty() ? 0u : 1u) << "seed " << seed;
    ASSERT_TRUE(nothing_left_open(table)) << "seed " << seed;
    if (stored.empty()) continue;
    uint64_t value = 0;
    ASSERT_EQ(dynvar_load(*table, key_of(&word), &value, DynvarForm::kBytes), DynvarResult::kDone);
    ASSERT_NE(std::find(stored.begin(), stored.end(), value), stored.end()) << "seed " << seed;
  }
}

TEST(DynvarSchedules, AValueIsNeverAnotherKeys) {
  for (unsigned seed = 0; seed < kSchedules; ++seed) {
    Table table(2, 8, 8);
    unsigned wrong = 0;
    const auto writer = [&](unsigned t) {
      std::mt19937 random(seed * 8 + t);
      for (int i = 0; i < 6; ++i) {
        const uint64_t word = random() % 4;
        uint64_t value = word + 100;
        switch (random() % 3) {
          case 0:
            (void)dynvar_store(*table, key_of(&word), &value, DynvarForm::kBytes);
            break;
          case 1:
            (void)dynvar_remove(*table, key_of(&word));
            break;
          default:
            value = 0;
            if (dynvar_load(*table, key_of(&word), &value, DynvarForm::kBytes) ==
                DynvarResult::kDone) {
              wrong += value != word + 100;
            }
        }
      }
    };
    Schedule(seed).run({[&] { writer(0); }, [&] { writer(1); }, [&] { writer(2); }});
    ASSERT_EQ(wrong, 0u) << "seed " << seed;
    ASSERT_TRUE(nothing_left_open(table)) << "seed " << seed;
    for (uint64_t word = 0; word < 4; ++word) {
      ASSERT_LE(table.states_of(key_of(&word)).size(), 1u) << "seed " << seed;
    }
  }
}

TEST(DynvarSchedules, TextsAreNeverTorn) {
  for (unsigned seed = 0; seed < kSchedules; ++seed) {
    Table table(2, 8, 8);
    unsigned torn = 0;
    const auto writer = [&](unsigned t) {
      std::mt19937 random(seed * 8 + t);
      for (int i = 0; i < 4; ++i) {
        const uint64_t word = random() % 3;
        char text[8];
        if (random() % 2 == 0) {
          const std::string written(random() % 8, static_cast<char>('a' + random() % 26));
          (void)dynvar_store(*table, key_of(&word), written.c_str(), DynvarForm::kText);
        } else if (dynvar_load(*table, key_of(&word), text, DynvarForm::kText) ==
                   DynvarResult::kDone) {
          const std::string read = text;
          torn += read.find_first_not_of(read.empty() ? 'x' : read[0]) != std::string::npos;
        }
      }
    };
    Schedule(seed).run({[&] { writer(0); }, [&] { writer(1); }, [&] { writer(2); }});
    ASSERT_EQ(torn, 0u) << "seed " << seed;
  }
}

// --------------------------------------------------------------------------------- several threads

constexpr int kThreads = 3;

template <typename Work>
void run_threads(Work work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([=] { work(t); });
  for (auto& thread : threads) thread.join();
}

TEST(DynvarThreads, ARaceForOneKeyEndsWithOneCell) {
  constexpr int kRounds = 3000;
  Table table(64, 8, 8);
  // Tombstones all over the window make the racers claim different cells.
  for (uint64_t i = 1000; i < 1060; ++i)
    (void)dynvar_store(*table, key_of(&i), &i, DynvarForm::kBytes);
  for (uint64_t i = 1000; i < 1060; ++i) (void)dynvar_remove(*table, key_of(&i));
  std::atomic<int> arrived{0};
  std::atomic<int> done{0};
  std::atomic<int> duplicates{0};
  std::atomic<int> lost{0};
  std::atomic<int> stored{0};
  run_threads([&](int t) {
    for (int round = 0; round < kRounds; ++round) {
      const auto word = static_cast<uint64_t>(round);
      const uint64_t value = word * 10 + static_cast<uint64_t>(t) + 1;
      ++arrived;
      while (arrived.load() < (round + 1) * kThreads) std::this_thread::yield();
      if (dynvar_store(*table, key_of(&word), &value, DynvarForm::kBytes) == DynvarResult::kDone)
        ++stored;
      ++done;
      while (done.load() < (round + 1) * kThreads) std::this_thread::yield();
      if (t == 0) {
        const auto states = table.states_of(key_of(&word));
        if (states.size() > 1) ++duplicates;
        if (states.empty() && stored.exchange(0) > 0) ++lost;
        stored = 0;
        (void)dynvar_remove(*table, key_of(&word));
      }
    }
  });
  EXPECT_EQ(duplicates.load(), 0);
  EXPECT_EQ(lost.load(), 0);
  EXPECT_EQ(table.count(kCellFull) + table.count(kCellWriting) + table.count(kCellPending) +
                table.count(kCellClaimed),
            0u);
}

TEST(DynvarThreads, AValueIsNeverAnotherKeys) {
  Table table(16, 8, 8);
  std::atomic<int> wrong{0};
  std::atomic<long> operations{0};
  run_threads([&](int t) {
    std::mt19937_64 random(static_cast<unsigned>(t));
    for (int i = 0; i < 200000; ++i) {
      const uint64_t word = random() % 24;  // more keys than cells
      const uint64_t value = word << 32 | (random() & 0xffff) | 1;
      uint64_t loaded = 0;
      switch (random() % 4) {
        case 0:
        case 1:
          operations += dynvar_store(*table, key_of(&word), &value, DynvarForm::kBytes) ==
                        DynvarResult::kDone;
          break;
        case 2:
          operations += dynvar_remove(*table, key_of(&word)) == DynvarResult::kDone;
          break;
        default:
          if (dynvar_load(*table, key_of(&word), &loaded, DynvarForm::kBytes) ==
                  DynvarResult::kDone &&
              loaded >> 32 != word) {
            ++wrong;
          }
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GT(operations.load(), 10000);
  for (uint64_t word = 0; word < 24; ++word) {
    EXPECT_LE(table.states_of(key_of(&word)).size(), 1u) << word;
    (void)dynvar_remove(*table, key_of(&word));
  }
  EXPECT_EQ(table.count(kCellFull), 0u);
  EXPECT_EQ(table.count(kCellTombstone) + table.count(kCellEmpty), 16u);
}

TEST(DynvarThreads, TextsAreNeverTorn) {
  Table table(16, 8, 64);
  std::atomic<int> torn{0};
  run_threads([&](int t) {
    std::mt19937_64 random(static_cast<unsigned>(t));
    for (int i = 0; i < 60000; ++i) {
      const uint64_t word = random() % 3;
      if (random() % 2 == 0) {
        const std::string text(random() % 63, static_cast<char>('a' + random() % 26));
        (void)dynvar_store(*table, key_of(&word), text.c_str(), DynvarForm::kText);
        continue;
      }
      char loaded[64];
      if (dynvar_load(*table, key_of(&word), loaded, DynvarForm::kText) != DynvarResult::kDone)
        continue;
      const std::string text = loaded;
      if (text.find_first_not_of(text.empty() ? 'x' : text[0]) != std::string::npos) ++torn;
    }
  });
  EXPECT_EQ(torn.load(), 0);
}

}  // namespace
}  // namespace trapline::wire
