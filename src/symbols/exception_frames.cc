// .eh_frame's FDEs and the landing pads of their LSDAs. See code_facts.h.

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/cursor.h"
#include "symbols/code_facts.h"

namespace trapline::symbols {
namespace {

// DW_EH_PE_*: how a pointer is written (low nibble), what it is relative to, and whether it points
// to the pointer.
constexpr std::uint8_t kOmit = 0xff;
constexpr std::uint8_t kFormatMask = 0x0f;
constexpr std::uint8_t kRelativeMask = 0x70;
constexpr std::uint8_t kPcRelative = 0x10;
constexpr std::uint8_t kFunctionRelative = 0x40;
constexpr std::uint8_t kIndirect = 0x80;

constexpr std::size_t kMaxLandingPads = 1 << 24;
constexpr std::uint64_t kLsdaWindow = 256 << 10;

std::uint64_t read_uleb(Cursor& c) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; !c.failed(); shift += 7) {
    const auto byte = c.read<std::uint8_t>();
    if (shift < 64) value |= std::uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80) == 0) break;
  }
  return value;
}

std::uint64_t read_sleb(Cursor& c) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; !c.failed();) {
    const auto byte = c.read<std::uint8_t>();
    if (shift < 64) value |= std::uint64_t{byte & 0x7fU} << shift;
    shift += 7;
    if ((byte & 0x80) == 0) {
      if ((byte & 0x40) != 0 && shift < 64) value |= ~std::uint64_t{0} << shift;
      break;
    }
  }
  return value;
}

template <typename T>
std::uint64_t sign_extended(T value) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

// The number as written, before anything is added; nullopt: an unknown format, or past the end.
std::optional<std::uint64_t> read_raw(Cursor& c, std::uint8_t encoding) {
  std::uint64_t value = 0;
  switch (encoding & kFormatMask) {
    case 0x00:
      value = c.read<std::uint64_t>();
      break;
    case 0x01:
      value = read_uleb(c);
      break;
    case 0x02:
      value = c.read<std::uint16_t>();
      break;
    case 0x03:
      value = c.read<std::uint32_t>();
      break;
    case 0x04:
      value = c.read<std::uint64_t>();
      break;
    case 0x09:
      value = read_sleb(c);
      break;
    case 0x0a:
      value = sign_extended(c.read<std::int16_t>());
      break;
    case 0x0b:
      value = sign_extended(c.read<std::int32_t>());
      break;
    case 0x0c:
      value = c.read<std::uint64_t>();
      break;
    default:
      return std::nullopt;
  }
  if (c.failed()) return std::nullopt;
  return value;
}

// Bytes with the link address of their first.
struct Region {
  std::span<const std::byte> bytes;
  LinkAddr address;
};

// A pointer at the cursor, which runs over region.bytes. 0 stays 0: "none".
std::optional<std::uint64_t> read_pointer(Cursor& c, const Region& region, std::uint8_t encoding,
                                          LinkAddr function) {
  const LinkAddr place = region.address + c.offset();
  const auto raw = read_raw(c, encoding);
  if (!raw || (encoding & kIndirect) != 0) return std::nullopt;
  if (*raw == 0) return 0;
  switch (encoding & kRelativeMask) {
    case 0:
      return *raw;
    case kPcRelative:
      return place.value() + *raw;
    case kFunctionRelative:
      return function.value() + *raw;
    default:
      return std::nullopt;
  }
}

struct Cie {
  bool usable = false;
  bool augmented = false;
  std::uint8_t fde_encoding = 0;
  std::uint8_t lsda_encoding = kOmit;
};

class FrameReader {
 public:
  FrameReader(const ElfImage& image, Region frames) : image_(image), frames_(frames) {
    const Section* table = image.find_section(".gcc_except_table");
    if (table == nullptr) return;
    if (auto bytes = image.section_bytes(*table)) lsdas_ = {*bytes, table->address};
  }

  ExceptionFrames run() {
    std::size_t at = 0;
    std::uint64_t count = 0;
    while (at + 4 <= frames_.bytes.size() && count++ < kMaxFrames) {
      const auto next = entry(at);
      if (!next) break;
      at = *next;
    }
    std::ranges::sort(out_.functions);
    std::ranges::sort(out_.landing_pads);
    const auto rest = std::ranges::unique(out_.landing_pads);
    out_.landing_pads.erase(rest.begin(), rest.end());
    return std::move(out_);
  }

 private:
  struct Entry {
    std::size_t id_offset;
    std::size_t end;
    std::uint32_t id;
  };

  // The record at an offset; nullopt: the terminator, or a record that leaves the section.
  std::optional<Entry> record(std::size_t at) {
    Cursor c(frames_.bytes);
    c.seek(at);
    std::uint64_t length = c.read<std::uint32_t>();
    if (length == 0) return std::nullopt;
    if (length == 0xffffffff) length = c.read<std::uint64_t>();
    if (c.failed() || length > c.remaining() || length < 4) {
      ++out_.undecoded;
      return std::nullopt;
    }
    const std::size_t id_offset = c.offset();
    return Entry{id_offset, id_offset + length, c.read<std::uint32_t>()};
  }

  std::optional<std::size_t> entry(std::size_t at) {
    const auto r = record(at);
    if (!r) return std::nullopt;
    if (r->id != 0 && !function(*r)) ++out_.undecoded;
    return r->end;
  }

  const Cie& cie_at(std::size_t at) {
    const auto [it, is_new] = cies_.try_emplace(at);
    if (is_new) {
      if (const auto r = record(at); r && r->id == 0) it->second = parse_cie(*r);
    }
    return it->second;
  }

  Cie parse_cie(const Entry& r) {
    Cie cie;
    Cursor c(frames_.bytes.first(r.end));
    c.seek(r.id_offset + 4);
    const auto version = c.read<std::uint8_t>();
    std::string_view augmentation;
    {
      const std::size_t begin = c.offset();
      while (!c.failed() && c.read<char>() != '\0') {
      }
      if (c.failed()) return cie;
      augmentation = {reinterpret_cast<const char*>(frames_.bytes.data()) + begin,
                      c.offset() - 1 - begin};
    }
    read_uleb(c);
    read_sleb(c);
    if (version == 1) {
      c.skip(1);
    } else {
      read_uleb(c);
    }
    cie.augmented = augmentation.starts_with('z');
    if (cie.augmented) {
      read_uleb(c);
    } else if (!augmentation.empty()) {
      return cie;  // "eh", or one we do not know: the layout of the FDEs is not known either
    }
    for (const char letter : augmentation) {
      if (letter == 'L') cie.lsda_encoding = c.read<std::uint8_t>();
      if (letter == 'R') cie.fde_encoding = c.read<std::uint8_t>();
      if (letter == 'P') {
        const auto encoding = c.read<std::uint8_t>();
        if (!read_raw(c, encoding)) return cie;
      }
    }
    cie.usable = !c.failed();
    return cie;
  }

  bool function(const Entry& r) {
    if (r.id > r.id_offset) return false;
    const Cie& cie = cie_at(r.id_offset - r.id);
    if (!cie.usable) return false;
    Cursor c(frames_.bytes.first(r.end));
    c.seek(r.id_offset + 4);
    const auto begin = read_pointer(c, frames_, cie.fde_encoding, LinkAddr());
    const auto length = read_raw(c, cie.fde_encoding & kFormatMask);
    if (!begin || !length || *begin + *length < *begin) return false;
    // Discarded functions keep an FDE at 0.
    if (*begin == 0 || *length == 0) return true;
    const AddressRange range{LinkAddr(*begin), LinkAddr(*begin + *length)};
    out_.functions.push_back(range);
    if (!cie.augmented || cie.lsda_encoding == kOmit) return true;
    read_uleb(c);
    const auto lsda = read_pointer(c, frames_, cie.lsda_encoding, range.begin);
    if (!lsda) return false;
    return *lsda == 0 || call_sites(LinkAddr(*lsda), range.begin);
  }

  // The bytes from an LSDA on; its length is only known after reading it.
  std::optional<Region> lsda_region(LinkAddr lsda) {
    const std::uint64_t skip = lsda - lsdas_.address;
    if (lsda >= lsdas_.address && skip < lsdas_.bytes.size()) {
      return Region{lsdas_.bytes.subspan(skip), lsda};
    }
    const Segment* s = image_.segment_of(lsda);
    if (s == nullptr || lsda - s->memory.begin >= s->file_size) return std::nullopt;
    const std::uint64_t left = s->file_size - (lsda - s->memory.begin);
    auto bytes = image_.bytes_at({lsda, lsda + std::min(left, kLsdaWindow)});
    if (!bytes) return std::nullopt;
    return Region{*bytes, lsda};
  }

  bool call_sites(LinkAddr lsda, LinkAddr function) {
    const auto region = lsda_region(lsda);
    if (!region) return false;
    Cursor c(region->bytes);
    std::uint64_t base = function.value();
    const auto base_encoding = c.read<std::uint8_t>();
    if (base_encoding != kOmit) {
      const auto pointer = read_pointer(c, *region, base_encoding, function);
      if (!pointer) return false;
      base = *pointer;
    }
    if (c.read<std::uint8_t>() != kOmit) read_uleb(c);
    const auto encoding = c.read<std::uint8_t>();
    const std::uint64_t length = read_uleb(c);
    if (c.failed() || length > c.remaining()) return false;
    const std::size_t end = c.offset() + length;
    while (c.offset() < end) {
      if (!read_raw(c, encoding) || !read_raw(c, encoding)) return false;
      const auto pad = read_raw(c, encoding);
      if (!pad) return false;
      read_uleb(c);
      if (c.failed()) return false;
      if (*pad == 0) continue;
      if (out_.landing_pads.size() >= kMaxLandingPads) return false;
      out_.landing_pads.push_back(LinkAddr(base + *pad));
    }
    return true;
  }

  const ElfImage& image_;
  Region frames_;
  Region lsdas_;
  std::unordered_map<std::size_t, Cie> cies_;
  ExceptionFrames out_;
};

// .eh_frame by its section, else by the pointer in .eh_frame_hdr, up to the end of its segment.
std::optional<Region> frame_region(const ElfImage& image) {
  if (const Section* s = image.find_section(".eh_frame")) {
    if (auto bytes = image.section_bytes(*s)) return Region{*bytes, s->address};
  }
  const auto header = image.eh_frame_hdr();
  if (!header) return std::nullopt;
  auto bytes = image.bytes_at(*header);
  if (!bytes) return std::nullopt;
  Cursor c(*bytes);
  c.skip(1);
  const auto encoding = c.read<std::uint8_t>();
  c.skip(2);
  const auto pointer = read_pointer(c, {*bytes, header->begin}, encoding, LinkAddr());
  if (!pointer || *pointer == 0) return std::nullopt;
  const LinkAddr begin(*pointer);
  const Segment* s = image.segment_of(begin);
  if (s == nullptr || begin - s->memory.begin >= s->file_size) return std::nullopt;
  auto frames = image.bytes_at({begin, s->memory.begin + s->file_size});
  if (!frames) return std::nullopt;
  return Region{*frames, begin};
}

}  // namespace

ExceptionFrames read_exception_frames(const ElfImage& image) {
  const auto region = frame_region(image);
  if (!region) return {};
  return FrameReader(image, *region).run();
}

}  // namespace trapline::symbols
