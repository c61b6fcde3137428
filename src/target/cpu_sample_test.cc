#include "target/cpu_sample.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "target/process.h"
#include "target/test_child.h"

namespace trapline::target {
namespace {

using std::chrono::milliseconds;

int spin(testing::Shared& shared) {
  shared.ready = 1;
  while (shared.stop == 0) shared.counters[0].fetch_add(1);
  return 0;
}

// Samples of one process, until there are enough of them or half a minute is over.
std::vector<CpuSample> collect(CpuSampler& sampler, Pid pid, std::size_t enough) {
  std::vector<CpuSample> found;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (found.size() < enough && std::chrono::steady_clock::now() < end) {
    (void)::poll(nullptr, 0, 10);
    for (CpuSample& sample : sampler.take()) {
      if (sample.pid == pid) found.push_back(std::move(sample));
    }
  }
  return found;
}

void expect_sound(const std::vector<CpuSample>& samples, Pid pid) {
  const std::string name = command_name(pid);
  std::uint64_t before = 0;
  for (const CpuSample& sample : samples) {
    EXPECT_EQ(sample.tid.value, pid.value);
    EXPECT_NE(sample.kernel_pc == 0, sample.user_pc == 0);
    EXPECT_EQ(sample.name, name);
    EXPECT_EQ(sample.parent.value, ::getpid());
    EXPECT_GE(sample.time, before);
    before = sample.time;
    ASSERT_TRUE(sample.registers);
    if (sample.user_pc != 0) {
      EXPECT_EQ(sample.registers->rip, sample.user_pc);
    }
  }
}

TEST(CpuSampler, FindsAProcessThatSpins) {
  testing::TestChild child(spin);
  ASSERT_TRUE(child.await_ready());
  const Pid pids[] = {child.pid()};
  auto sampler = CpuSampler::processes(pids, CpuSampler::Children::kLeftOut, {milliseconds(2), {}});
  if (!sampler && sampler.error().code() == ErrorCode::kPermission)
    GTEST_SKIP() << sampler.error().text();
  ASSERT_TRUE(sampler) << sampler.error().text();
  EXPECT_TRUE(sampler->take().empty());
  ASSERT_TRUE(sampler->start());
  const auto samples = collect(*sampler, child.pid(), 20);
  EXPECT_GE(samples.size(), 20u);
  expect_sound(samples, child.pid());
}

TEST(CpuSampler, FindsItOnTheMachine) {
  testing::TestChild child(spin);
  ASSERT_TRUE(child.await_ready());
  auto sampler = CpuSampler::machine({milliseconds(2), {}});
  if (!sampler && sampler.error().code() == ErrorCode::kPermission)
    GTEST_SKIP() << sampler.error().text();
  ASSERT_TRUE(sampler) << sampler.error().text();
  EXPECT_TRUE(sampler->reaches_kernel());
  ASSERT_TRUE(sampler->start());
  const auto samples = collect(*sampler, child.pid(), 20);
  EXPECT_GE(samples.size(), 20u);
  expect_sound(samples, child.pid());
}

TEST(CpuSampler, AProcessorThatThereIsNotIsRefused) {
  const auto sampler = CpuSampler::machine({milliseconds(2), 1 << 20});
  ASSERT_FALSE(sampler);
  EXPECT_NE(sampler.error().code(), ErrorCode::kInternal);
}

TEST(CpuSampler, ProcessorsAreInOrder) {
  const std::vector<std::uint32_t> online = online_processors();
  EXPECT_FALSE(online.empty());
  EXPECT_TRUE(std::is_sorted(online.begin(), online.end()));
}

TEST(ReadRunTime, GoesUpWhileAProcessRuns) {
  testing::TestChild child(spin);
  ASSERT_TRUE(child.await_ready());
  const Tid tid{child.pid().value};
  const auto before = read_run_time(child.pid(), tid);
  ASSERT_TRUE(before);
  EXPECT_TRUE(testing::TestChild::eventually([&] {
    const auto now = read_run_time(child.pid(), tid);
    return now && *now > *before;
  }));
  const auto stat = read_stat(child.pid(), tid);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->priority, 20 + ::getpriority(PRIO_PROCESS, 0));
  EXPECT_EQ(stat->group.value, ::getpgrp());
}

}  // namespace
}  // namespace trapline::target
