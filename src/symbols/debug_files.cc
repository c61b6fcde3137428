#include "symbols/debug_files.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/cursor.h"
#include "symbols/dynamic_symbols.h"
#include "symbols/image_source.h"

namespace trapline::symbols {
namespace {

constexpr std::string_view kDebugRoot = "/usr/lib/debug";
constexpr std::uint64_t kCrcChunk = 1 << 20;

// Eight tables, so that eight bytes are folded at a time: debug files are large.
using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
  CrcTables t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xedb88320U ^ (c >> 1) : c >> 1;
    t[0][i] = c;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t i = 0; i < 256; ++i) t[k][i] = t[0][t[k - 1][i] & 0xff] ^ (t[k - 1][i] >> 8);
  }
  return t;
}

constexpr CrcTables kCrc = make_crc_tables();

Result<std::uint32_t> crc_of_file(const std::string& path) {
  TL_TRY_ASSIGN(const auto source, ByteSource::open(path));
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < source.size(); at += kCrcChunk) {
    TL_TRY_ASSIGN(const auto part, source.copy(at, std::min(kCrcChunk, source.size() - at)));
    crc = crc32(crc, part.span());
  }
  return crc;
}

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

class Search {
 public:
  Search(const ElfImage& image, DebugFileSearch& out) : image_(image), out_(out) {}

  // True: found.
  bool try_path(const std::string& path, const std::optional<DebugLink>& link) {
    if (!tried_.insert(path).second) return false;
    auto file = ElfImage::open_debug_file(path);
    if (!file) {
      if (file.error().code() != ErrorCode::kNotFound) out_.notes.push_back(file.error().text());
      return false;
    }
    if (!belongs(*file, path, link)) return false;
    const auto is_symtab = [](const Section& s) { return s.type == SHT_SYMTAB; };
    if (std::ranges::none_of(file->sections(), is_symtab)) return false;
    out_.path = path;
    out_.file = std::move(*file);
    return true;
  }

 private:
  bool belongs(const ElfImage& file, const std::string& path,
               const std::optional<DebugLink>& link) {
    if (image_.build_id() && file.build_id()) {
      if (*image_.build_id() == *file.build_id()) return true;
      out_.notes.push_back(path + ": of another build (build-id " + file.build_id()->hex() +
                           ", wanted " + image_.build_id()->hex() + ")");
      return false;
    }
    if (!link) return false;
    const auto crc = crc_of_file(path);
    if (crc && *crc == link->crc) return true;
    out_.notes.push_back(crc ? path + ": CRC differs from the one in .gnu_debuglink"
                             : crc.error().text());
    return false;
  }

  const ElfImage& image_;
  DebugFileSearch& out_;
  std::set<std::string> tried_;
};

}  // namespace

std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  std::uint32_t c = ~crc;
  while (bytes.size() >= 8) {
    Cursor cursor(bytes);
    const std::uint32_t low = cursor.read<std::uint32_t>() ^ c;
    const auto high = cursor.read<std::uint32_t>();
    c = kCrc[7][low & 0xff] ^ kCrc[6][low >> 8 & 0xff] ^ kCrc[5][low >> 16 & 0xff] ^
        kCrc[4][low >> 24] ^ kCrc[3][high & 0xff] ^ kCrc[2][high >> 8 & 0xff] ^
        kCrc[1][high >> 16 & 0xff] ^ kCrc[0][high >> 24];
    bytes = bytes.subspan(8);
  }
  for (const std::byte b : bytes) {
    c = kCrc[0][(c ^ std::to_integer<std::uint32_t>(b)) & 0xff] ^ (c >> 8);
  }
  return ~c;
}

// The name, its NUL, padding to 4, the CRC.
std::optional<DebugLink> debug_link(const ElfImage& image) {
  const Section* section = image.find_section(".gnu_debuglink");
  if (section == nullptr) return std::nullopt;
  auto bytes = image.section_bytes(*section);
  if (!bytes) return std::nullopt;
  const std::string name(table_string(*bytes, 0));
  if (name.empty() || name.find('/') != std::string::npos) return std::nullopt;
  Cursor cursor(*bytes);
  cursor.skip((name.size() + 1 + 3) / 4 * 4);
  const auto crc = cursor.read<std::uint32_t>();
  if (cursor.failed()) return std::nullopt;
  return DebugLink{name, crc};
}

DebugFileSearch find_debug_file(const ElfImage& image, const std::string& path,
                                const std::string& root_prefix) {
  DebugFileSearch out;
  Search search(image, out);
  std::vector<std::string> roots{root_prefix};
  if (!root_prefix.empty()) roots.emplace_back();
  const auto link = debug_link(image);
  const std::string directory = directory_of(path);

  if (image.build_id() && image.build_id()->bytes.size() >= 2) {
    const std::string hex = image.build_id()->hex();
    for (const std::string& root : roots) {
      const std::string name = "/.build-id/" + hex.substr(0, 2) + "/" + hex.substr(2) + ".debug";
      if (search.try_path(root + std::string(kDebugRoot) + name, link)) return out;
    }
  }
  if (!link) return out;
  for (const std::string& root : roots) {
    // Relative paths have no root.
    const std::string base = directory.starts_with('/') ? root + directory : directory;
    if (search.try_path(base + "/" + link->name, link) ||
        search.try_path(base + "/.debug/" + link->name, link)) {
      return out;
    }
    if (!directory.starts_with('/')) continue;
    if (search.try_path(root + std::string(kDebugRoot) + directory + "/" + link->name, link) ||
        // Where /lib is a link to /usr/lib, packages use the longer path.
        search.try_path(root + std::string(kDebugRoot) + "/usr" + directory + "/" + link->name,
                        link)) {
      return out;
    }
  }
  return out;
}

}  // namespace trapline::symbols
