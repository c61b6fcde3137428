#include <algorithm>
#include <cstring>

#include "symbols/debug_files.h"

#ifdef TRAPLINE_HAVE_LZMA
#include <lzma.h>
#endif

namespace trapline::symbols {

#ifdef TRAPLINE_HAVE_LZMA
namespace {

constexpr std::uint64_t kMaxDecoderMemory = 256 << 20;
// Symbols and their names shrink to a fourth or so; what shrinks to less than this is there to cost
// the reader time and memory.
constexpr std::size_t kMaxRatio = 100;
constexpr std::size_t kAlwaysUnpacked = 1 << 20;
constexpr std::size_t kMaxUnpacked = 512 << 20;
constexpr std::size_t kChunk = 1 << 20;

class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { lzma_end(&stream_); }
  lzma_stream& stream() { return stream_; }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

}  // namespace

Result<ElfImage> read_debug_data(const ElfImage& image, const Section& section) {
  const auto fail = [&](const char* why) {
    return Error(ErrorCode::kBadInput, image.name() + ": .gnu_debugdata " + why);
  };
  TL_TRY_ASSIGN(const auto packed, image.section_bytes(section));
  Decoder decoder;
  lzma_stream& stream = decoder.stream();
  if (lzma_stream_decoder(&stream, kMaxDecoderMemory, 0) != LZMA_OK) return fail("has no decoder");
  stream.next_in = reinterpret_cast<const std::uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  const std::size_t most =
      std::min(kMaxUnpacked, std::max(kAlwaysUnpacked, packed.size() * kMaxRatio));
  std::vector<std::byte> out;
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK) {
    if (out.size() >= most) return fail("is too large when unpacked");
    const std::size_t done = out.size();
    out.resize(done + kChunk);
    stream.next_out = reinterpret_cast<std::uint8_t*>(out.data() + done);
    stream.avail_out = kChunk;
    status = lzma_code(&stream, LZMA_FINISH);
    out.resize(done + kChunk - stream.avail_out);
  }
  if (status != LZMA_STREAM_END) return fail("is not valid xz data");
  return ElfImage::debug_file_from_bytes(std::move(out), image.name() + "(.gnu_debugdata)");
}

#else

Result<ElfImage> read_debug_data(const ElfImage& image, const Section&) {
  return Error(ErrorCode::kUnsupported,
               image.name() + ": .gnu_debugdata is xz-compressed, and this build has no liblzma");
}

#endif

}  // namespace trapline::symbols
