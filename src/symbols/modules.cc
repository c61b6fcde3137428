#include "symbols/modules.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

namespace trapline::symbols {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
constexpr std::string_view kVdsoPath = "[vdso]";
constexpr std::string_view kVdsoName = "linux-vdso.so.1";
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMaxVdso = 1 << 20;

using ImagePtr = std::shared_ptr<const ElfImage>;

std::string_view without_deleted(std::string_view path) {
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  return path;
}

std::string last_component(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

// What makes two mappings parts of one file.
using FileKey = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, std::string>;
FileKey key_of(const MapEntry& e) { return {e.device_major, e.device_minor, e.inode, e.path}; }

bool same_file(const MapEntry& a, const MapEntry& b) {
  return a.inode == b.inode && a.device_major == b.device_major &&
         a.device_minor == b.device_minor && a.path == b.path;
}

std::string hex(std::uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), kDigits[value & 15]);
    value >>= 4;
  } while (value != 0);
  return out;
}

// The load bias that makes one of the image's executable segments explain the mapping.
std::optional<LoadBias> bias_of(const ElfImage& image, const MapEntry& e) {
  for (const Segment& s : image.segments()) {
    if (!s.executable) continue;
    const std::uint64_t first = s.file_offset - s.file_offset % kPage;
    if (e.offset < first || e.offset >= s.file_offset + s.file_size) continue;
    const std::uint64_t link = s.memory.begin.value() + (e.offset - s.file_offset);
    return LoadBias{e.start.value() - link};
  }
  return std::nullopt;
}

bool same_layout(const ElfImage& a, const ElfImage& b) {
  return std::ranges::equal(a.segments(), b.segments(), [](const Segment& x, const Segment& y) {
    return x.memory == y.memory && x.file_offset == y.file_offset && x.file_size == y.file_size &&
           x.executable == y.executable;
  });
}

// One mapped file, examined once however often it is mapped.
struct MappedFile {
  ImagePtr image;  // empty: not to be used; see `error`, or, without one, not an ELF file
  std::string open_path;
  FileState state = FileState::kSame;
  std::string note;
  std::optional<Error> error;  // also beside a memory-only image: why the file was not used
};

class ModuleReader {
 public:
  ModuleReader(std::span<const MapEntry> maps, const ModuleOptions& options)
      : maps_(maps), options_(options) {}

  ModuleList run() {
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      const MapEntry& e = maps_[i];
      if (!e.executable) continue;
      if (e.path == kVdsoPath) {
        add_vdso(e);
      } else if (e.path.starts_with('/') && e.inode != 0) {
        add_mapping(i);
      }
    }
    assign_roles();
    std::ranges::sort(out_.modules, {}, &Module::base);
    return std::move(out_);
  }

 private:
  void problem(const MapEntry& e, Error error) {
    out_.problems.push_back({std::string(without_deleted(e.path)), e.start, std::move(error)});
  }

  void add_vdso(const MapEntry& e) {
    if (!options_.memory || e.end - e.start > kMaxVdso) return;
    std::vector<std::byte> bytes(e.end - e.start);
    if (auto read = options_.memory(e.start, bytes); !read) {
      return problem(e, read.error().within("reading the vDSO"));
    }
    auto image = ElfImage::from_bytes(std::move(bytes), std::string(kVdsoPath));
    if (!image) return problem(e, image.error());
    Module m;
    m.name = kVdsoName;
    m.path = kVdsoPath;
    m.role = ModuleRole::kVdso;
    m.base = e.start;
    m.text.push_back({e.start, e.end});
    m.bias = {e.start.value() - image->segments().front().memory.begin.value()};
    m.image = std::make_shared<const ElfImage>(std::move(*image));
    m.symbol_options.debug_files = DebugFiles::kIgnore;
    out_.modules.push_back(std::move(m));
  }

  // The mapping that holds the ELF header of the object that mapping `index` belongs to.
  const MapEntry* header_of(std::size_t index) const {
    for (std::size_t i = index + 1; i-- > 0;) {
      const MapEntry& e = maps_[i];
      if (e.offset == 0 && same_file(e, maps_[index])) return e.readable ? &e : nullptr;
    }
    return nullptr;
  }

  void add_mapping(std::size_t index) {
    const MapEntry& e = maps_[index];
    const auto [it, is_new] = files_.try_emplace(key_of(e));
    MappedFile& file = it->second;
    if (is_new) {
      file = examine(index);
      if (file.error) problem(e, *file.error);
    }
    if (!file.image) return;
    ImagePtr image = file.image;
    auto bias = bias_of(*image, e);
    if (!bias) {
      return problem(
          e, {ErrorCode::kBadInput, image->name() + ": mapped executable at offset " +
                                        hex(e.offset) + ", where it has no executable segment"});
    }
    for (Module& m : out_.modules) {
      if (m.image != nullptr && m.path == without_deleted(e.path) && m.bias.value == bias->value) {
        m.text.push_back({e.start, e.end});
        return;
      }
    }
    // A second copy (dlmopen) of a file that only memory shows: its image reads the second copy's
    // memory.
    if (file.state == FileState::kMemoryOnly && image->memory_bias().value != bias->value) {
      if (auto other = memory_image(index)) image = std::move(other);
    }
    add_module(index, file, std::move(image), *bias);
  }

  void add_module(std::size_t index, const MappedFile& file, ImagePtr image, LoadBias bias) {
    const MapEntry& e = maps_[index];
    Module m;
    m.path = without_deleted(e.path);
    m.name = last_component(m.path);
    m.open_path = file.open_path;
    m.file_state = file.state;
    m.file_note = file.note;
    m.bias = bias;
    m.text.push_back({e.start, e.end});
    const LinkAddr first = image->segments().front().memory.begin;
    m.base = bias.to_remote(first - first.value() % kPage);
    m.is_part = is_mapped_as_a_whole_elsewhere(e, m.base);
    m.symbol_options.path = m.path;
    m.symbol_options.root_prefix = options_.root_prefix;
    if (file.state == FileState::kMemoryOnly && !image->build_id()) {
      m.symbol_options.debug_files = DebugFiles::kIgnore;
    }
    m.image = std::move(image);
    out_.modules.push_back(std::move(m));
  }

  bool is_mapped_as_a_whole_elsewhere(const MapEntry& e, RemoteAddr base) const {
    const auto is_header = [&](const MapEntry& m) { return m.offset == 0 && same_file(m, e); };
    const auto is_ours = [&](const MapEntry& m) { return is_header(m) && m.start == base; };
    return std::ranges::any_of(maps_, is_header) && std::ranges::none_of(maps_, is_ours);
  }

  // Code that a program made and put into a file of its own (memfd, /dev/shm) is no object, and no
  // problem.
  bool shows_elf(std::size_t index) const {
    const MapEntry* header = header_of(index);
    std::array<std::byte, SELFMAG> magic{};
    return header != nullptr && options_.memory(header->start, magic).has_value() &&
           std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0;
  }

  ImagePtr memory_image(std::size_t index) const {
    const MapEntry* header = header_of(index);
    if (!options_.memory || header == nullptr) return nullptr;
    auto image =
        ElfImage::from_memory(options_.memory, header->start,
                              std::string(without_deleted(maps_[index].path)) + " in memory");
    return image ? std::make_shared<const ElfImage>(std::move(*image)) : nullptr;
  }

  struct Candidate {
    ImagePtr image;
    std::optional<Error> error;
    bool same_inode = false;
  };

  Candidate open_candidate(const std::string& path, const MapEntry& e) const {
    Candidate out;
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd) {
      out.error = errno == ENOENT ? Error(ErrorCode::kNotFound, path + ": no such file", ENOENT)
                                  : Error::os(errno, path);
      return out;
    }
    struct stat st{};
    if (::fstat(fd.get(), &st) == 0) {
      out.same_inode = st.st_ino == e.inode && major(st.st_dev) == e.device_major &&
                       minor(st.st_dev) == e.device_minor;
    }
    auto image = ElfImage::from_fd(std::move(fd), path);
    if (image) {
      out.image = std::make_shared<const ElfImage>(std::move(*image));
    } else {
      out.error = image.error();
    }
    return out;
  }

  // Is this file what is mapped? By build-id where both have one, else by inode; the layout must
  // agree anyhow.
  static bool is_mapped_file(const Candidate& c, const ElfImage* memory) {
    if (!c.image) return false;
    if (memory == nullptr) return c.same_inode;
    if (!same_layout(*c.image, *memory)) return false;
    if (c.image->build_id() && memory->build_id()) {
      return *c.image->build_id() == *memory->build_id();
    }
    return c.same_inode;
  }

  MappedFile examine(std::size_t index) {
    const MapEntry& e = maps_[index];
    const std::string path(without_deleted(e.path));
    const ImagePtr memory = memory_image(index);
    std::vector<std::string> paths{options_.root_prefix + path};
    // Under chroot(), maps shows paths of our root.
    if (!options_.root_prefix.empty()) paths.push_back(path);

    MappedFile out;
    std::optional<Candidate> refused;
    for (const std::string& candidate : paths) {
      Candidate c = open_candidate(candidate, e);
      if (is_mapped_file(c, memory.get())) {
        out.image = c.image;
        out.open_path = candidate;
        if (!c.same_inode) out.note = "another file of the same build-id";
        return out;
      }
      if (!refused || c.same_inode) refused = std::move(c);
    }
    if (options_.memory && !memory && !shows_elf(index)) return out;
    out.note = why_refused(*refused, e, memory.get());
    if (!options_.map_files.empty()) {
      const std::string link =
          options_.map_files + "/" + hex(e.start.value()) + "-" + hex(e.end.value());
      Candidate c = open_candidate(link, e);
      if (c.image && (memory == nullptr || same_layout(*c.image, *memory))) {
        out.image = c.image;
        out.open_path = link;
        out.state = FileState::kMapped;
        return out;
      }
    }
    return from_memory_only(std::move(out), *refused, memory, path);
  }

  static std::string why_refused(const Candidate& c, const MapEntry& e, const ElfImage* memory) {
    if (!c.image && c.error && c.error->code() != ErrorCode::kNotFound) return c.error->text();
    if (!c.image) return "deleted";
    const std::string what = e.path.ends_with(kDeleted) ? "deleted and replaced" : "replaced";
    if (memory != nullptr && memory->build_id() && c.image->build_id() &&
        *memory->build_id() != *c.image->build_id()) {
      return what + ": build-id " + memory->build_id()->hex() + " in memory, " +
             c.image->build_id()->hex() + " on disk";
    }
    return what + ": the file at this path is not the one mapped";
  }

  static MappedFile from_memory_only(MappedFile out, const Candidate& refused,
                                     const ImagePtr& memory, const std::string& path) {
    out.image = memory;
    out.state = FileState::kMemoryOnly;
    const bool broken =
        !refused.image && refused.error && refused.error->code() != ErrorCode::kNotFound;
    if (broken) out.error = refused.error;
    if (!memory) {
      if (!out.error) {
        out.error = Error(ErrorCode::kNotFound,
                          path + ": " + out.note + "; and its memory shows no usable ELF header");
      }
    }
    return out;
  }

  void assign_roles() {
    const std::string wanted(without_deleted(options_.executable));
    Module* executable = nullptr;
    for (Module& m : out_.modules) {
      if (m.role != ModuleRole::kVdso && !wanted.empty() && m.path == wanted && !m.is_part)
        executable = &m;
    }
    // `ld.so program`: /proc/PID/exe is the loader; the program is the object that is one.
    const auto is_program = [](const Module& m) {
      return m.role != ModuleRole::kVdso && m.image->is_executable();
    };
    if (executable == nullptr || !executable->image->is_executable()) {
      const auto it = std::ranges::find_if(out_.modules, is_program);
      if (it != out_.modules.end()) executable = &*it;
    }
    if (executable == nullptr) return;
    executable->role = ModuleRole::kExecutable;
    for (Module& m : out_.modules) {
      if (m.is_part && m.path == executable->path) m.role = ModuleRole::kExecutable;
    }
    const std::string loader = last_component(executable->image->interpreter());
    for (Module& m : out_.modules) {
      if (m.role == ModuleRole::kExecutable || m.role == ModuleRole::kVdso || loader.empty())
        continue;
      if (m.name == loader || m.image->dynamic().soname == loader)
        m.role = ModuleRole::kInterpreter;
    }
  }

  std::span<const MapEntry> maps_;
  const ModuleOptions& options_;
  ModuleList out_;
  std::map<FileKey, MappedFile> files_;
};

}  // namespace

const Module* ModuleList::containing(RemoteAddr address) const {
  for (const Module& m : modules) {
    for (const RemoteRange& r : m.text) {
      if (r.contains(address)) return &m;
    }
  }
  return nullptr;
}

const Module* ModuleList::executable() const {
  const auto it = std::ranges::find_if(
      modules, [](const Module& m) { return m.role == ModuleRole::kExecutable && !m.is_part; });
  return it == modules.end() ? nullptr : &*it;
}

ModuleList read_modules(std::span<const MapEntry> maps, const ModuleOptions& options) {
  return ModuleReader(maps, options).run();
}

}  // namespace trapline::symbols
