#include "probes/semaphores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

namespace trapline::probes {
namespace {

// In this very process: nothing else touches the counter meanwhile.
class Semaphores : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = target::Memory::open(Pid{getpid()});
    ASSERT_TRUE(opened) << opened.error().text();
    memory_ = std::make_unique<target::Memory>(std::move(*opened));
  }
  template <typename T>
  static RemoteAddr address_of(const T& object) {
    return RemoteAddr(reinterpret_cast<std::uint64_t>(&object));
  }
  // What is in the counter after the entry has been taken back.
  std::uint16_t taken_back(SemaphoreState state, std::uint16_t before, std::uint16_t now) {
    counter_ = now;
    entry_.before = before;
    entry_.state = state;
    const BookSemaphore entry = entry_;
    EXPECT_TRUE(take_back_semaphore(*memory_, entry, address_of(entry_)));
    const std::uint16_t after = *const_cast<volatile std::uint16_t*>(&counter_);
    // Once more changes nothing.
    const BookSemaphore again = entry_;
    EXPECT_TRUE(take_back_semaphore(*memory_, again, address_of(entry_)));
    EXPECT_EQ(*const_cast<volatile std::uint16_t*>(&counter_), after);
    return after;
  }

  std::unique_ptr<target::Memory> memory_;
  std::uint16_t counter_ = 0;
  BookSemaphore entry_{address_of(counter_).value(), 0, 0, SemaphoreState::kDown};
  PlacedSemaphore placed_{address_of(counter_), address_of(entry_)};
};

TEST_F(Semaphores, AreRaisedAndLoweredByOne) {
  counter_ = 3;
  ASSERT_TRUE(raise_semaphore(*memory_, placed_));
  EXPECT_EQ(counter_, 4);
  EXPECT_EQ(entry_.state, SemaphoreState::kUp);
  counter_ = 9;  // others came
  ASSERT_TRUE(lower_semaphore(*memory_, placed_));
  EXPECT_EQ(counter_, 8);
  EXPECT_EQ(entry_.state, SemaphoreState::kDown);
}

TEST_F(Semaphores, NeedNoBook) {
  const PlacedSemaphore alone{placed_.counter};
  ASSERT_TRUE(raise_semaphore(*memory_, alone));
  EXPECT_EQ(counter_, 1);
  ASSERT_TRUE(lower_semaphore(*memory_, alone));
  EXPECT_EQ(counter_, 0);
  EXPECT_EQ(entry_.state, SemaphoreState::kDown);
}

TEST_F(Semaphores, AreTakenBackOnlyIfTheyWereRaised) {
  EXPECT_EQ(taken_back(SemaphoreState::kDown, 0, 5), 5);
  EXPECT_EQ(taken_back(SemaphoreState::kUp, 0, 5), 4);
  // Killed between the book and the counter, or after it.
  EXPECT_EQ(taken_back(SemaphoreState::kRaising, 2, 2), 2);
  EXPECT_EQ(taken_back(SemaphoreState::kRaising, 2, 3), 2);
  EXPECT_EQ(taken_back(SemaphoreState::kLowering, 3, 3), 2);
  EXPECT_EQ(taken_back(SemaphoreState::kLowering, 3, 2), 2);
  // The program itself has cleared it.
  EXPECT_EQ(taken_back(SemaphoreState::kUp, 0, 0), 0);
  // A forged state.
  EXPECT_EQ(taken_back(static_cast<SemaphoreState>(77), 2, 3), 3);
}

TEST_F(Semaphores, ThatAreNotThereAreAnError) {
  EXPECT_FALSE(raise_semaphore(*memory_, {RemoteAddr(8)}));
  EXPECT_FALSE(take_back_semaphore(*memory_, {8, 0, 0, SemaphoreState::kUp}, RemoteAddr(0)));
}

}  // namespace
}  // namespace trapline::probes
