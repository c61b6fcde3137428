#include "symbols/object_probes.h"

#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "base/cursor.h"
#include "base/fd.h"

namespace trapline::symbols {

namespace {

constexpr std::string_view kOwner = "stapsdt";
constexpr GElf_Word kNoteType = 3;
constexpr std::size_t kAddresses = 3 * 8;  // pc, base, semaphore

struct ElfEnd {
  void operator()(Elf* elf) const { elf_end(elf); }
};
using ElfHandle = std::unique_ptr<Elf, ElfEnd>;

Error bad(const std::string& what, const std::string& path) {
  return {ErrorCode::kBadInput, what + ": " + path};
}

// A NUL-terminated string at the cursor; it fails where there is none.
std::string read_string(Cursor& cursor) {
  std::string text;
  while (!cursor.failed()) {
    const char c = cursor.read<char>();
    if (c == '\0') break;
    text += c;
  }
  return text;
}

Result<> read_notes(Elf_Data* data, const std::string& path, std::vector<ObjectProbe>& probes) {
  const std::span bytes(static_cast<const std::byte*>(data->d_buf), data->d_size);
  GElf_Nhdr note;
  std::size_t name_at = 0;
  std::size_t at = 0;
  for (std::size_t offset = 0; (offset = gelf_getnote(data, offset, &note, &name_at, &at)) != 0;) {
    if (note.n_type != kNoteType || note.n_namesz != kOwner.size() + 1 ||
        std::memcmp(bytes.data() + name_at, kOwner.data(), note.n_namesz) != 0)
      continue;
    Cursor cursor(bytes.subspan(at, note.n_descsz));
    cursor.skip(kAddresses);
    ObjectProbe probe;
    probe.provider = read_string(cursor);
    probe.name = read_string(cursor);
    if (cursor.failed()) return bad("corrupt file", path);
    probes.push_back(std::move(probe));
  }
  return {};
}

}  // namespace

Result<std::vector<ObjectProbe>> probes_of_object(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Error::os(errno, "failed to open " + path);
  elf_version(EV_CURRENT);
  const ElfHandle elf(elf_begin(fd.get(), ELF_C_READ, nullptr));
  if (elf == nullptr) return bad(std::string("failed to process: ") + elf_errmsg(-1), path);
  if (elf_kind(elf.get()) == ELF_K_AR) {
    return bad("archives are not permitted; use the contents of the archive instead", path);
  }
  if (elf_kind(elf.get()) != ELF_K_ELF) return bad("invalid file type", path);
  GElf_Ehdr header;
  if (gelf_getehdr(elf.get(), &header) == nullptr) return bad("corrupt file", path);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return Error(ErrorCode::kUnsupported,
                 "incorrect ELF class or machine type for object file: " + path);
  }
  std::vector<ObjectProbe> probes;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf.get(), section)) != nullptr;) {
    GElf_Shdr about;
    if (gelf_getshdr(section, &about) == nullptr) return bad("corrupt file", path);
    if (about.sh_type != SHT_NOTE || about.sh_size == 0) continue;
    Elf_Data* const data = elf_getdata(section, nullptr);
    if (data == nullptr || data->d_buf == nullptr) return bad("corrupt file", path);
    TL_TRY(read_notes(data, path, probes));
  }
  std::ranges::sort(probes);
  const auto [first, last] = std::ranges::unique(probes);
  probes.erase(first, last);
  return probes;
}

}  // namespace trapline::symbols
