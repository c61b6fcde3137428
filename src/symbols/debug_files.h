// Finds the separate debug file of an image, and unpacks .gnu_debugdata.
//
// Where: /usr/lib/debug/.build-id/xx/yyyy.debug by build-id; then .gnu_debuglink's name next to the
// file, in .debug/ beside it, and under /usr/lib/debug; each first below the root prefix (a
// container's root), then below our own. A file is taken only when it is proven to belong: its
// build-id equals the image's, or, where one has none, its CRC equals the one of .gnu_debuglink.
// Sources: GDB manual, "Separate Debug Files"; "MiniDebugInfo".

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "symbols/elf_image.h"

namespace trapline::symbols {

struct DebugFileSearch {
  std::optional<ElfImage> file;  // empty: none
  std::string path;
  std::vector<std::string> notes;  // candidates that were there and did not fit
};

// `path`: the image's file as its process sees it.
DebugFileSearch find_debug_file(const ElfImage& image, const std::string& path,
                                const std::string& root_prefix);

struct DebugLink {
  std::string name;  // a plain file name
  std::uint32_t crc;
};
std::optional<DebugLink> debug_link(const ElfImage& image);

// CRC-32 (IEEE 802.3), as .gnu_debuglink has it; start with 0, feed the parts in order.
std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes);

// The ELF file in .gnu_debugdata: symbols of a stripped file, xz-compressed. kUnsupported: built
// without liblzma.
Result<ElfImage> read_debug_data(const ElfImage& image, const Section& section);

}  // namespace trapline::symbols
