#include "wire/layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "wire/key.h"

namespace trapline::wire {
namespace {

LayoutRequest typical() {
  LayoutRequest request;
  request.strings_size = 1234;
  request.globals_size = 5000;
  request.direct_size = 8 * 128;
  request.self_size = 24;
  request.scratch_size = 700;
  request.threads = 3;
  request.buffer_bytes = 4 << 20;
  return request;
}

TEST(Layout, PartsFollowEachOtherAligned) {
  const Layout layout = make_layout(typical());
  EXPECT_GE(layout.strings, sizeof(Header));
  EXPECT_GE(layout.globals, layout.strings + layout.strings_size);
  EXPECT_GE(layout.slots, layout.globals + layout.globals_size);
  EXPECT_GE(layout.chunks, layout.slots + (layout.slot_count + uint64_t{1}) * layout.slot_stride);
  EXPECT_EQ(layout.size, layout.chunks + uint64_t{layout.chunk_count} * kChunkSize);
  EXPECT_EQ(layout.chunk_count, 64u);
  EXPECT_EQ(layout.slot_stride % 64, 0u);
  EXPECT_EQ(layout.slots % kPageSize, 0u);
  EXPECT_GE(layout.slot_direct, sizeof(Slot));
  EXPECT_GE(layout.slot_self, layout.slot_direct + 8 * 128);
  EXPECT_GE(layout.slot_scratch, layout.slot_self + 24);
  EXPECT_GE(layout.slot_stride, layout.slot_scratch + uint64_t{kLevels} * layout.scratch_size);
  EXPECT_GE(layout.scratch_size, 700u);
}

TEST(Layout, SlotsAreAPowerOfTwoAndFourAThread) {
  LayoutRequest request = typical();
  EXPECT_EQ(make_layout(request).slot_count, 256u);
  request.threads = 64;
  EXPECT_EQ(make_layout(request).slot_count, 256u);
  request.threads = 65;
  EXPECT_EQ(make_layout(request).slot_count, 512u);
  EXPECT_EQ(make_layout(request).slot_shift, 55u);
  request.threads = uint64_t{1} << 60;
  EXPECT_EQ(make_layout(request).slot_count, kMaxSlots);
}

TEST(Layout, WhatIsTooLargeHasNoLayout) {
  LayoutRequest request = typical();
  request.globals_size = kMaxAreaSize + 1;
  EXPECT_EQ(make_layout(request).size, 0u);
  request = typical();
  request.direct_size = kMaxPartSize + 1;
  EXPECT_EQ(make_layout(request).size, 0u);
}

TEST(Layout, AFreshArenaHasEveryChunkOnceInItsPool) {
  LayoutRequest request = typical();
  request.buffer_bytes = 0;
  const Layout layout = make_layout(request);
  EXPECT_EQ(layout.chunk_count, kMinChunks);
  const auto arena = std::make_unique<uint64_t[]>(layout.size / 8);
  auto* bytes = reinterpret_cast<unsigned char*>(arena.get());
  initialize(bytes, layout);
  const auto& header = *reinterpret_cast<const Header*>(bytes);
  EXPECT_EQ(header.magic, kMagic);
  EXPECT_EQ(header.version, kVersion);
  EXPECT_EQ(header.size, layout.size);
  EXPECT_EQ(header.epoch, 2u);
  EXPECT_EQ(header.state, 0u);
  std::set<uint64_t> seen;
  auto at = static_cast<uint32_t>(header.free_chunks);
  while (at != 0 && at <= layout.chunk_count) {
    ASSERT_TRUE(seen.insert(at).second);
    uint32_t link;
    std::memcpy(&link, bytes + layout.chunks + uint64_t{at - 1} * kChunkSize, 4);
    EXPECT_EQ(link, 0u) << "untouched";
    at = free_next(at - 1, link);
  }
  EXPECT_EQ(seen.size(), layout.chunk_count);
}

// ----------------------------------------------------------------------------------------------------------
// keys

TEST(Key, WhatIsWrittenIsRead) {
  uint64_t words[32];
  for (const size_t length : {0u, 1u, 7u, 8u, 9u, 16u, 63u}) {
    const std::string text(length, 'x');
    KeyWriter writer(words, 32);
    writer.append_integer(42);
    writer.append_string(text.c_str(), 64);
    writer.append_integer(~uint64_t{0});
    ASSERT_FALSE(writer.failed());
    EXPECT_LE(writer.count() * 8, 8 + string_key_bytes(64) + 8);
    KeyReader reader(words, writer.count());
    EXPECT_EQ(reader.read_integer(), 42u);
    const auto bytes = reader.read_string();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.words), bytes.length), text);
    EXPECT_EQ(reader.read_integer(), ~uint64_t{0});
    EXPECT_TRUE(reader.at_end());
    EXPECT_FALSE(reader.failed());
  }
}

TEST(Key, AStringIsCutAtStrsize) {
  uint64_t words[4];
  KeyWriter writer(words, 4);
  writer.append_string("abcdefgh", 5);
  EXPECT_EQ(words[0], 4u);
  EXPECT_EQ(writer.count(), 2u);
  EXPECT_EQ(std::memcmp(words + 1, "abcd\0\0\0\0", 8), 0);
}

TEST(Key, PaddingIsZeroWhateverWasThereBefore) {
  uint64_t words[4] = {~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}};
  KeyWriter writer(words, 4);
  writer.append_string("abc", 256);
  EXPECT_EQ(words[1], 0x636261u);
}

TEST(Key, NothingIsWrittenBehindTheBuffer) {
  uint64_t words[3] = {0, 0, 7};
  KeyWriter writer(words, 2);
  writer.append_string("a long string that does not fit", 256);
  EXPECT_TRUE(writer.failed());
  EXPECT_EQ(words[2], 7u);
  writer.append_integer(1);
  EXPECT_EQ(words[2], 7u);
}

TEST(Key, AForgedLengthFails) {
  for (const uint64_t length : {uint64_t{17}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 6}) {
    const uint64_t words[3] = {length, 0, 0};
    KeyReader reader(words, 3);
    EXPECT_EQ(reader.read_string().length, 0u);
    EXPECT_TRUE(reader.failed());
  }
  KeyReader reader(nullptr, 0);
  EXPECT_EQ(reader.read_integer(), 0u);
  EXPECT_TRUE(reader.failed());
}

TEST(Key, HashesOfNeighboursSpread) {
  std::vector<unsigned> low(256), high(256);
  for (uint64_t i = 0; i < 256 * 64; ++i) {
    const uint64_t word = i * 16;  // as addresses and sizes are
    const uint32_t hash = hash_key(&word, 1, 3);
    ++low[hash & 255];
    ++high[hash >> 24];
  }
  for (unsigned n : low) EXPECT_LT(n, 160u);
  for (unsigned n : high) EXPECT_LT(n, 160u);
  const uint64_t words[2] = {1, 2};
  const uint64_t swapped[2] = {2, 1};
  EXPECT_NE(hash_key(words, 2, 0), hash_key(swapped, 2, 0));
  EXPECT_NE(hash_key(words, 2, 0), hash_key(words, 2, 1));
  EXPECT_NE(hash_key(words, 1, 0), hash_key(words, 2, 0));
}

}  // namespace
}  // namespace trapline::wire
