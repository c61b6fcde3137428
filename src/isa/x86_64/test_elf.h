// For tests only: a well-formed ELF file of this machine as a ModuleInput. No checks: the files are
// the system's own. (What the product reads of ELF is in symbols.)

#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isa/x86_64/control_flow.h"

namespace trapline::isa {

class TestElf {
 public:
  struct Symbol {
    std::string name;
    CodeRange range;
  };

  explicit TestElf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    image_.assign(std::istreambuf_iterator<char>(file), {});
    if (image_.size() < sizeof(Elf64_Ehdr)) return;
    std::memcpy(&header_, image_.data(), sizeof(header_));
    sections_ = table<Elf64_Shdr>(header_.e_shoff, header_.e_shnum);
    input.model = header_.e_type == ET_EXEC ? AddressModel::kFixed : AddressModel::kRelative;
    input.pointers = CodePointers::kComplete;
    load_segments();
    for (const Elf64_Shdr& s : sections_) read_section(s);
    for (const Elf64_Shdr& s : sections_) {
      const std::string name = section_name(s);
      if (name == ".eh_frame") read_frames(s);
      const bool data = (s.sh_flags & SHF_ALLOC) != 0 && (s.sh_flags & SHF_EXECINSTR) == 0 &&
                        s.sh_type == SHT_PROGBITS && !name.starts_with(".eh_") &&
                        name != ".gcc_except_table";
      if (input.model == AddressModel::kFixed && data) {
        const auto found = scan_code_pointers(input.sections, bytes(s.sh_offset, s.sh_size));
        input.code_pointers.insert(input.code_pointers.end(), found.begin(), found.end());
      }
    }
    input.read_data = [this](LinkAddr at, std::span<std::byte> out) {
      return read(at.value(), out);
    };
  }
  TestElf(const TestElf&) = delete;
  TestElf& operator=(const TestElf&) = delete;

  bool valid() const { return !input.sections.empty(); }

  ModuleInput input;
  std::vector<Symbol> symbols;                         // one an address, without .cold
  std::map<std::string, std::vector<CodeRange>> cold;  // by the name before ".cold"

 private:
  struct Segment {
    std::uint64_t address = 0;
    std::vector<std::byte> bytes;
  };

  template <typename T>
  std::vector<T> table(std::uint64_t offset, std::uint64_t count) const {
    std::vector<T> out(count);
    std::memcpy(out.data(), image_.data() + offset, count * sizeof(T));
    return out;
  }
  std::span<const std::byte> bytes(std::uint64_t offset, std::uint64_t size) const {
    return std::as_bytes(std::span(image_)).subspan(offset, size);
  }
  std::string section_name(const Elf64_Shdr& s) const {
    return image_.data() + sections_[header_.e_shstrndx].sh_offset + s.sh_name;
  }

  bool read(std::uint64_t at, std::span<std::byte> out) const {
    for (const Segment& s : segments_) {
      if (at < s.address || at - s.address > s.bytes.size()) continue;
      if (out.size() > s.bytes.size() - (at - s.address)) continue;
      std::memcpy(out.data(), s.bytes.data() + (at - s.address), out.size());
      return true;
    }
    return false;
  }

  void load_segments() {
    for (const auto& p : table<Elf64_Phdr>(header_.e_phoff, header_.e_phnum)) {
      if (p.p_type != PT_LOAD) continue;
      const auto b = bytes(p.p_offset, p.p_filesz);
      segments_.push_back({p.p_vaddr, {b.begin(), b.end()}});
    }
  }

  void read_section(const Elf64_Shdr& s) {
    if ((s.sh_flags & SHF_EXECINSTR) != 0 && s.sh_type == SHT_PROGBITS) {
      input.sections.push_back({LinkAddr(s.sh_addr), bytes(s.sh_offset, s.sh_size)});
    } else if (s.sh_type == SHT_RELA && (s.sh_flags & SHF_ALLOC) != 0) {
      read_relocations(s);
    } else if (s.sh_type == SHT_SYMTAB || s.sh_type == SHT_DYNSYM) {
      read_symbols(s);
    }
  }

  void read_relocations(const Elf64_Shdr& section) {
    for (const auto& r :
         table<Elf64_Rela>(section.sh_offset, section.sh_size / sizeof(Elf64_Rela))) {
      if (ELF64_R_TYPE(r.r_info) != R_X86_64_RELATIVE) continue;
      input.code_pointers.push_back(LinkAddr(static_cast<std::uint64_t>(r.r_addend)));
      for (Segment& s : segments_) {
        if (r.r_offset >= s.address && r.r_offset - s.address + 8 <= s.bytes.size()) {
          std::memcpy(s.bytes.data() + (r.r_offset - s.address), &r.r_addend, 8);
        }
      }
    }
  }

  void read_symbols(const Elf64_Shdr& section) {
    const char* names = image_.data() + sections_[section.sh_link].sh_offset;
    for (const auto& y : table<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym))) {
      const int type = ELF64_ST_TYPE(y.st_info);
      if ((type != STT_FUNC && type != STT_GNU_IFUNC) || y.st_shndx == 0 || y.st_value == 0)
        continue;
      const CodeRange range{LinkAddr(y.st_value), LinkAddr(y.st_value + y.st_size)};
      input.functions.push_back(range);
      const std::string name = names + y.st_name;
      if (const auto dot = name.find(".cold"); dot != std::string::npos) {
        cold[name.substr(0, dot)].push_back(range);
        input.cold.push_back(range);
      } else if (seen_.insert(y.st_value).second) {
        symbols.push_back({name, range});
      }
    }
  }

  // .eh_frame and .gcc_except_table (LSB, DWARF extensions).
  struct Reader {
    const TestElf* elf;
    std::uint64_t address;
    std::span<const std::byte> data;
    std::size_t at = 0;

    template <typename T>
    T fixed() {
      T value{};
      std::memcpy(&value, data.data() + at, sizeof(T));
      at += sizeof(T);
      return value;
    }
    std::uint64_t uleb() {
      std::uint64_t value = 0;
      for (unsigned shift = 0;; shift += 7) {
        const auto b = fixed<std::uint8_t>();
        value |= std::uint64_t{b & 0x7fu} << shift;
        if ((b & 0x80) == 0) return value;
      }
    }
    std::uint64_t encoded(std::uint8_t encoding) {
      if (encoding == 0xff) return 0;
      const std::uint64_t here = address + at;
      std::uint64_t value = 0;
      switch (encoding & 15) {
        case 1:
          value = uleb();
          break;
        case 2:
          value = fixed<std::uint16_t>();
          break;
        case 3:
          value = fixed<std::uint32_t>();
          break;
        case 10:
          value = static_cast<std::uint64_t>(std::int64_t{fixed<std::int16_t>()});
          break;
        case 11:
          value = static_cast<std::uint64_t>(std::int64_t{fixed<std::int32_t>()});
          break;
        default:
          value = fixed<std::uint64_t>();
          break;
      }
      if (value != 0 && (encoding & 0x70) == 0x10) value += here;
      return value;
    }
  };

  void read_frames(const Elf64_Shdr& s) {
    Reader in{this, s.sh_addr, bytes(s.sh_offset, s.sh_size)};
    std::map<std::size_t, std::pair<std::uint8_t, std::uint8_t>>
        encodings;  // of LSDA and address, by CIE
    while (in.at + 4 <= in.data.size()) {
      const std::size_t start = in.at;
      const auto length = in.fixed<std::uint32_t>();
      if (length == 0) continue;
      const std::size_t body = in.at;
      const auto id = in.fixed<std::uint32_t>();
      if (id == 0) {
        encodings[start] = read_cie(in);
      } else {
        const auto [lsda, address] = encodings[body - id];
        read_fde(in, lsda, address);
      }
      in.at = body + length;
    }
  }

  static std::pair<std::uint8_t, std::uint8_t> read_cie(Reader& in) {
    in.at += 1;
    const std::string augmentation = reinterpret_cast<const char*>(in.data.data() + in.at);
    in.at += augmentation.size() + 1;
    for (int n = 0; n < 3; ++n) in.uleb();
    std::uint8_t lsda = 0xff;
    std::uint8_t address = 0;
    for (const char c : augmentation) {
      if (c == 'z') in.uleb();
      if (c == 'L') lsda = in.fixed<std::uint8_t>();
      if (c == 'R') address = in.fixed<std::uint8_t>();
      if (c == 'P') in.encoded(in.fixed<std::uint8_t>());
    }
    return {lsda, address};
  }

  void read_fde(Reader& in, std::uint8_t lsda_encoding, std::uint8_t address_encoding) {
    const std::uint64_t begin = in.encoded(address_encoding);
    const std::uint64_t size = in.encoded(address_encoding & 15);
    input.frames.push_back({LinkAddr(begin), LinkAddr(begin + size)});
    if (lsda_encoding == 0xff) return;
    in.uleb();
    const std::uint64_t lsda = in.encoded(lsda_encoding);
    if (lsda != 0) read_lsda(lsda, begin);
  }

  void read_lsda(std::uint64_t address, std::uint64_t function) {
    for (const Segment& s : segments_) {
      if (address < s.address || address - s.address >= s.bytes.size()) continue;
      Reader in{this, address, std::span(s.bytes).subspan(address - s.address)};
      const auto start = in.fixed<std::uint8_t>();
      const std::uint64_t base = start == 0xff ? function : in.encoded(start);
      if (in.fixed<std::uint8_t>() != 0xff) in.uleb();
      const auto encoding = in.fixed<std::uint8_t>();
      const std::size_t end = in.uleb() + in.at;
      while (in.at < end) {
        in.encoded(encoding);
        in.encoded(encoding);
        const std::uint64_t pad = in.encoded(encoding);
        in.uleb();
        if (pad != 0) input.landing_pads.push_back(LinkAddr(base + pad));
      }
    }
  }

  std::vector<char> image_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> sections_;
  std::vector<Segment> segments_;
  std::set<std::uint64_t> seen_;
};

}  // namespace trapline::isa
