#include "symbols/elf_image.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/cursor.h"
#include "symbols/image_source.h"

namespace trapline::symbols {
namespace {

constexpr std::size_t kMaxSections = 1 << 20;
constexpr std::size_t kMaxDynamicEntries = 1 << 16;
constexpr std::uint64_t kGoNote = 4;

template <typename T>
T load(std::span<const std::byte> bytes) {
  return Cursor(bytes).read<T>();
}

std::string_view string_in(std::span<const std::byte> table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const auto* begin = reinterpret_cast<const char*>(table.data()) + offset;
  const auto* end = std::find(begin, begin + (table.size() - offset), '\0');
  return {begin, end};
}

}  // namespace

std::optional<Bytes> Bytes::allocate(std::size_t size) {
  Bytes out;
  out.data_.reset(new (std::nothrow) std::byte[size == 0 ? 1 : size]);
  if (!out.data_) return std::nullopt;
  out.size_ = size;
  return out;
}

std::string BuildId::hex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<std::size_t>(b >> 4)];
    out += kDigits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return out;
}

struct ElfImage::State {
  ByteSource source;
  std::string name;
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> program_headers;
  std::vector<Segment> segments;
  std::vector<Section> sections;
  std::string_view interpreter;
  std::optional<BuildId> build_id;
  bool go_note = false;
  DynamicInfo dynamic;

  State(ByteSource s, std::string n) : source(std::move(s)), name(std::move(n)) {}

  Error bad(std::string_view what) const {
    return {ErrorCode::kBadInput, name + ": " + std::string(what)};
  }
  const Segment* segment_of(LinkAddr a) const;
  Result<std::span<const std::byte>> at(AddressRange range) const;

  Result<> read_header();
  Result<> read_program_headers();
  Result<> read_segments();
  void read_sections();
  void read_notes();
  void parse_notes(std::span<const std::byte> bytes, std::uint64_t alignment);
  void read_dynamic();
  void take_dynamic(std::int64_t tag, std::uint64_t value, std::vector<std::uint64_t>& needed,
                    std::optional<std::uint64_t>& soname);
  LinkAddr unrelocated(std::uint64_t pointer) const;
};

const Segment* ElfImage::State::segment_of(LinkAddr a) const {
  for (const Segment& s : segments) {
    if (s.memory.contains(a)) return &s;
  }
  return nullptr;
}

Result<std::span<const std::byte>> ElfImage::State::at(AddressRange range) const {
  const Segment* s = segment_of(range.begin);
  if (s == nullptr || range.end < range.begin || range.begin - s->memory.begin > s->file_size ||
      range.size() > s->file_size - (range.begin - s->memory.begin)) {
    return bad("an address range lies outside what the file loads");
  }
  const bool in_memory = source.kind() == ImageSource::kProcessMemory;
  const std::uint64_t base = in_memory ? s->memory.begin.value() : s->file_offset;
  const std::uint64_t offset = base + (range.begin - s->memory.begin);
  auto bytes = source.view(offset, range.size(), {base, base + s->file_size});
  if (!bytes) return bytes.error().within(name);
  return *bytes;
}

Result<> ElfImage::State::read_header() {
  auto ident = source.header_bytes(0, EI_NIDENT);
  if (!ident) return bad("truncated: shorter than an ELF identification");
  const auto id = [&](std::size_t i) { return std::to_integer<unsigned char>((*ident)[i]); };
  if (std::memcmp(ident->data(), ELFMAG, SELFMAG) != 0) return bad("not an ELF file");
  if (id(EI_CLASS) == ELFCLASS32) {
    return Error(ErrorCode::kUnsupported, name + ": a 32-bit ELF file; only x86-64 is supported");
  }
  if (id(EI_CLASS) != ELFCLASS64) return bad("corrupt: ELF class is neither 32 nor 64 bit");
  if (id(EI_DATA) != ELFDATA2LSB) {
    return Error(ErrorCode::kUnsupported, name + ": not a little-endian ELF file");
  }
  auto bytes = source.header_bytes(0, sizeof(Elf64_Ehdr));
  if (!bytes) return bad("truncated: shorter than an ELF header");
  header = load<Elf64_Ehdr>(*bytes);
  if (header.e_machine != EM_X86_64) {
    return Error(ErrorCode::kUnsupported, name + ": an ELF file for machine " +
                                              std::to_string(header.e_machine) +
                                              "; only x86-64 (62) is supported");
  }
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) {
    const bool known = header.e_type == ET_REL || header.e_type == ET_CORE;
    return Error(known ? ErrorCode::kUnsupported : ErrorCode::kBadInput,
                 name + (header.e_type == ET_REL    ? ": an object file, not a program or library"
                         : header.e_type == ET_CORE ? ": a core file, not a program or library"
                                                    : ": corrupt: unknown ELF type"));
  }
  return {};
}

Result<> ElfImage::State::read_program_headers() {
  if (header.e_phnum == 0) return bad("corrupt: no program headers");
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return bad("corrupt: wrong program header size");
  const std::uint64_t size = std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  auto bytes = source.header_bytes(header.e_phoff, size);
  if (!bytes) return bad("truncated or corrupt: program headers lie outside the file");
  Cursor cursor(*bytes);
  for (unsigned i = 0; i < header.e_phnum; ++i)
    program_headers.push_back(cursor.read<Elf64_Phdr>());
  return {};
}

Result<> ElfImage::State::read_segments() {
  for (const Elf64_Phdr& p : program_headers) {
    if (p.p_type != PT_LOAD || p.p_memsz == 0) continue;
    if (p.p_filesz > p.p_memsz || p.p_vaddr + p.p_memsz < p.p_vaddr ||
        p.p_offset + p.p_filesz < p.p_offset) {
      return bad("corrupt: a loadable segment has impossible sizes");
    }
    segments.push_back({{LinkAddr(p.p_vaddr), LinkAddr(p.p_vaddr + p.p_memsz)},
                        p.p_offset,
                        p.p_filesz,
                        (p.p_flags & PF_R) != 0,
                        (p.p_flags & PF_W) != 0,
                        (p.p_flags & PF_X) != 0});
  }
  if (segments.empty()) return bad("corrupt: nothing to load");
  std::ranges::sort(segments, {}, [](const Segment& s) { return s.memory.begin; });
  if (source.kind() == ImageSource::kProcessMemory) return {};
  for (const Segment& s : segments) {
    if (s.file_offset + s.file_size > source.size()) {
      return bad("truncated: a loadable segment ends at byte " +
                 std::to_string(s.file_offset + s.file_size) + " of a file of " +
                 std::to_string(source.size()));
    }
  }
  return {};
}

// A file without readable section headers is used without them, as the loader does.
void ElfImage::State::read_sections() {
  if (source.kind() == ImageSource::kProcessMemory || header.e_shoff == 0) return;
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return;
  auto first = source.header_bytes(header.e_shoff, sizeof(Elf64_Shdr));
  if (!first) return;
  const auto zero = load<Elf64_Shdr>(*first);
  const std::uint64_t count = header.e_shnum != 0 ? header.e_shnum : zero.sh_size;
  const std::uint64_t names =
      header.e_shstrndx == SHN_XINDEX ? zero.sh_link : std::uint64_t{header.e_shstrndx};
  if (count == 0 || count > kMaxSections) return;
  auto bytes = source.header_bytes(header.e_shoff, count * sizeof(Elf64_Shdr));
  if (!bytes) return;

  Cursor cursor(*bytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto h = cursor.read<Elf64_Shdr>();
    const std::uint64_t end = h.sh_addr + h.sh_size;
    Section section{{},        h.sh_type, h.sh_flags, LinkAddr(h.sh_addr), h.sh_offset,
                    h.sh_size, h.sh_link, h.sh_info,  h.sh_entsize};
    // A range that wraps around is of no use to anyone.
    if (end < h.sh_addr) section.size = 0;
    sections.push_back(section);
  }
  if (names >= count || sections[names].type == SHT_NOBITS) return;
  auto table = source.view(sections[names].offset, sections[names].size, {0, source.size()});
  if (!table) return;
  Cursor again(*bytes);
  for (Section& section : sections) {
    section.name = string_in(*table, again.read<Elf64_Shdr>().sh_name);
  }
}

void ElfImage::State::parse_notes(std::span<const std::byte> bytes, std::uint64_t alignment) {
  const std::uint64_t align = alignment == 8 ? 8 : 4;
  const auto padding = [&](std::uint64_t n) { return (align - n % align) % align; };
  Cursor cursor(bytes);
  while (cursor.remaining() >= sizeof(Elf64_Nhdr)) {
    const auto note = cursor.read<Elf64_Nhdr>();
    const auto owner = cursor.read_bytes(note.n_namesz);
    cursor.skip(std::min<std::size_t>(padding(note.n_namesz), cursor.remaining()));
    const auto content = cursor.read_bytes(note.n_descsz);
    if (cursor.failed()) return;
    cursor.skip(std::min<std::size_t>(padding(note.n_descsz), cursor.remaining()));
    const std::string_view who = string_in(owner, 0);
    if (who == "Go" && note.n_type == kGoNote) go_note = true;
    if (who == "GNU" && note.n_type == NT_GNU_BUILD_ID && !build_id && !content.empty()) {
      build_id = BuildId{{content.begin(), content.end()}};
    }
  }
}

void ElfImage::State::read_notes() {
  for (const Elf64_Phdr& p : program_headers) {
    if (p.p_type != PT_NOTE || p.p_vaddr + p.p_filesz < p.p_vaddr) continue;
    if (auto bytes = at({LinkAddr(p.p_vaddr), LinkAddr(p.p_vaddr + p.p_filesz)})) {
      parse_notes(*bytes, p.p_align);
    }
  }
  for (const Section& s : sections) {
    if (build_id || s.type != SHT_NOTE) continue;
    if (auto bytes = source.view(s.offset, s.size, {0, source.size()})) parse_notes(*bytes, 4);
  }
}

// In memory glibc adds the bias to the pointers of PT_DYNAMIC; musl and the vDSO do not.
LinkAddr ElfImage::State::unrelocated(std::uint64_t pointer) const {
  if (source.kind() != ImageSource::kProcessMemory ||
      pointer < segments.back().memory.end.value()) {
    return LinkAddr(pointer);
  }
  return LinkAddr(pointer - source.bias());
}

void ElfImage::State::take_dynamic(std::int64_t tag, std::uint64_t value,
                                   std::vector<std::uint64_t>& needed,
                                   std::optional<std::uint64_t>& soname) {
  DynamicInfo& d = dynamic;
  switch (tag) {
    case DT_NEEDED:
      needed.push_back(value);
      break;
    case DT_SONAME:
      soname = value;
      break;
    case DT_SYMTAB:
      d.symtab = unrelocated(value);
      break;
    case DT_STRTAB:
      d.strtab = unrelocated(value);
      break;
    case DT_STRSZ:
      d.strtab_size = value;
      break;
    case DT_VERSYM:
      d.versym = unrelocated(value);
      break;
    case DT_VERNEED:
      d.verneed = unrelocated(value);
      break;
    case DT_VERNEEDNUM:
      d.verneed_count = value;
      break;
    case DT_VERDEF:
      d.verdef = unrelocated(value);
      break;
    case DT_VERDEFNUM:
      d.verdef_count = value;
      break;
    case DT_HASH:
      d.hash = unrelocated(value);
      break;
    case DT_GNU_HASH:
      d.gnu_hash = unrelocated(value);
      break;
    case DT_RELA:
      d.rela = unrelocated(value);
      break;
    case DT_RELASZ:
      d.rela_size = value;
      break;
    case DT_JMPREL:
      d.jmprel = unrelocated(value);
      break;
    case DT_PLTRELSZ:
      d.jmprel_size = value;
      break;
    case DT_RELR:
      d.relr = unrelocated(value);
      break;
    case DT_RELRSZ:
      d.relr_size = value;
      break;
    case DT_BIND_NOW:
      d.bind_now = true;
      break;
    case DT_FLAGS:
      d.bind_now |= (value & DF_BIND_NOW) != 0;
      break;
    case DT_FLAGS_1:
      d.flags_1 = value;
      d.bind_now |= (value & DF_1_NOW) != 0;
      break;
    default:
      break;
  }
}

void ElfImage::State::read_dynamic() {
  for (const Elf64_Phdr& p : program_headers) {
    if (p.p_type == PT_INTERP && p.p_filesz > 0 && p.p_filesz <= 4096) {
      auto bytes = at({LinkAddr(p.p_vaddr), LinkAddr(p.p_vaddr + p.p_filesz)});
      if (bytes) interpreter = string_in(*bytes, 0);
    }
  }
  const auto p = std::ranges::find(program_headers, Elf64_Word{PT_DYNAMIC}, &Elf64_Phdr::p_type);
  if (p == program_headers.end() || p->p_vaddr + p->p_filesz < p->p_vaddr) return;
  auto bytes = at({LinkAddr(p->p_vaddr), LinkAddr(p->p_vaddr + p->p_filesz)});
  if (!bytes) return;
  dynamic.present = true;
  std::vector<std::uint64_t> needed;
  std::optional<std::uint64_t> soname;
  Cursor cursor(*bytes);
  for (std::size_t i = 0; i < kMaxDynamicEntries && cursor.remaining() >= sizeof(Elf64_Dyn); ++i) {
    const auto entry = cursor.read<Elf64_Dyn>();
    if (entry.d_tag == DT_NULL) break;
    take_dynamic(entry.d_tag, entry.d_un.d_val, needed, soname);
  }
  const LinkAddr strings = dynamic.strtab;
  if (strings.value() + dynamic.strtab_size < strings.value()) return;
  auto table = at({strings, strings + dynamic.strtab_size});
  if (!table) return;
  if (soname) dynamic.soname = string_in(*table, *soname);
  for (const std::uint64_t n : needed) dynamic.needed.push_back(string_in(*table, n));
}

ElfImage::ElfImage(std::unique_ptr<State> state) : state_(std::move(state)) {}
ElfImage::ElfImage(ElfImage&&) noexcept = default;
ElfImage& ElfImage::operator=(ElfImage&&) noexcept = default;
ElfImage::~ElfImage() = default;

Result<ElfImage> ElfImage::parse(std::unique_ptr<State> state, ProgramHeaders program_headers) {
  TL_TRY(state->read_header());
  if (program_headers == ProgramHeaders::kRead) {
    TL_TRY(state->read_program_headers());
    TL_TRY(state->read_segments());
    if (state->source.kind() == ImageSource::kProcessMemory) {
      state->source.set_bias(state->segments.front().memory.begin.value() -
                             state->segments.front().file_offset);
    }
  }
  state->read_sections();
  state->read_notes();
  state->read_dynamic();
  return ElfImage(std::move(state));
}

Result<ElfImage> ElfImage::open(const std::string& path) {
  TL_TRY_ASSIGN(auto source, ByteSource::open(path));
  return parse(std::make_unique<State>(std::move(source), path), ProgramHeaders::kRead);
}

Result<ElfImage> ElfImage::from_fd(Fd fd, std::string name) {
  TL_TRY_ASSIGN(auto source, ByteSource::from_fd(std::move(fd), name));
  return parse(std::make_unique<State>(std::move(source), std::move(name)), ProgramHeaders::kRead);
}

Result<ElfImage> ElfImage::from_bytes(std::vector<std::byte> bytes, std::string name) {
  return parse(std::make_unique<State>(ByteSource::from_bytes(std::move(bytes)), std::move(name)),
               ProgramHeaders::kRead);
}

Result<ElfImage> ElfImage::open_debug_file(const std::string& path) {
  TL_TRY_ASSIGN(auto source, ByteSource::open(path));
  return parse(std::make_unique<State>(std::move(source), path), ProgramHeaders::kIgnore);
}

Result<ElfImage> ElfImage::debug_file_from_bytes(std::vector<std::byte> bytes, std::string name) {
  return parse(std::make_unique<State>(ByteSource::from_bytes(std::move(bytes)), std::move(name)),
               ProgramHeaders::kIgnore);
}

Result<ElfImage> ElfImage::from_memory(MemoryReader reader, RemoteAddr header, std::string name) {
  return parse(
      std::make_unique<State>(ByteSource::from_memory(std::move(reader), header), std::move(name)),
      ProgramHeaders::kRead);
}

const std::string& ElfImage::name() const { return state_->name; }
ImageSource ElfImage::source() const { return state_->source.kind(); }
LinkAddr ElfImage::entry() const { return LinkAddr(state_->header.e_entry); }
std::string_view ElfImage::interpreter() const { return state_->interpreter; }
LoadBias ElfImage::memory_bias() const { return {state_->source.bias()}; }
const std::vector<Segment>& ElfImage::segments() const { return state_->segments; }
const std::vector<Section>& ElfImage::sections() const { return state_->sections; }
const DynamicInfo& ElfImage::dynamic() const { return state_->dynamic; }
const std::optional<BuildId>& ElfImage::build_id() const { return state_->build_id; }
const Segment* ElfImage::segment_of(LinkAddr a) const { return state_->segment_of(a); }

// libc.so.6 can be run, so it has an interpreter; its SONAME says that it is a library all the
// same.
ImageKind ElfImage::kind() const {
  if (state_->header.e_type == ET_EXEC) return ImageKind::kFixedExecutable;
  const bool pie = (state_->dynamic.flags_1 & DF_1_PIE) != 0 ||
                   (!state_->interpreter.empty() && state_->dynamic.soname.empty());
  return pie ? ImageKind::kPie : ImageKind::kSharedObject;
}

bool ElfImage::is_static() const {
  return state_->interpreter.empty() && state_->dynamic.needed.empty();
}

std::vector<AddressRange> ElfImage::text_ranges() const {
  std::vector<AddressRange> out;
  for (const Segment& s : state_->segments) {
    if (s.executable) out.push_back({s.memory.begin, s.memory.begin + s.file_size});
  }
  return out;
}

std::vector<AddressRange> ElfImage::code_ranges() const {
  std::vector<AddressRange> out;
  for (const Section& s : state_->sections) {
    const bool code = (s.flags & SHF_EXECINSTR) != 0 && (s.flags & SHF_ALLOC) != 0;
    if (code && s.size > 0) out.push_back(s.range());
  }
  if (out.empty()) return text_ranges();
  std::ranges::sort(out);
  return out;
}

std::optional<AddressRange> ElfImage::eh_frame_hdr() const {
  for (const Elf64_Phdr& p : state_->program_headers) {
    if (p.p_type == PT_GNU_EH_FRAME && p.p_vaddr + p.p_filesz >= p.p_vaddr) {
      return AddressRange{LinkAddr(p.p_vaddr), LinkAddr(p.p_vaddr + p.p_filesz)};
    }
  }
  return std::nullopt;
}

const Section* ElfImage::find_section(std::string_view name) const {
  const auto it = std::ranges::find(state_->sections, name, &Section::name);
  return it == state_->sections.end() ? nullptr : &*it;
}

Result<std::span<const std::byte>> ElfImage::bytes_at(AddressRange range) const {
  return state_->at(range);
}

Result<std::span<const std::byte>> ElfImage::section_bytes(const Section& section) const {
  if (section.type == SHT_NOBITS) return state_->bad("a section has no bytes in the file");
  auto bytes = state_->source.view(section.offset, section.size,
                                   {section.offset, section.offset + section.size});
  if (!bytes) return bytes.error().within(name() + ": section " + std::string(section.name));
  return *bytes;
}

Result<Bytes> ElfImage::copy_section(const Section& section) const {
  if (section.type == SHT_NOBITS) return state_->bad("a section has no bytes in the file");
  auto bytes = state_->source.copy(section.offset, section.size);
  if (!bytes) return bytes.error().within(name() + ": section " + std::string(section.name));
  return std::move(*bytes);
}

std::optional<std::string_view> ElfImage::string_at(LinkAddr address, std::size_t limit) const {
  const Segment* s = segment_of(address);
  if (s == nullptr || address - s->memory.begin >= s->file_size) return std::nullopt;
  const std::uint64_t left = s->file_size - (address - s->memory.begin);
  auto bytes = bytes_at({address, address + std::min<std::uint64_t>(left, limit)});
  if (!bytes) return std::nullopt;
  const std::string_view text = string_in(*bytes, 0);
  if (text.size() == bytes->size()) return std::nullopt;
  return text;
}

bool ElfImage::is_go() const {
  return state_->go_note || find_section(".go.buildinfo") != nullptr ||
         find_section(".gopclntab") != nullptr || find_section(".note.go.buildid") != nullptr;
}

bool ElfImage::is_stripped() const {
  const auto is_symtab = [](const Section& s) { return s.type == SHT_SYMTAB; };
  return std::ranges::none_of(state_->sections, is_symtab) &&
         find_section(".gnu_debugdata") == nullptr;
}

}  // namespace trapline::symbols
