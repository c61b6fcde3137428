#include "symbols/image_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace trapline::symbols {
namespace {

constexpr std::uint64_t kFileWindow = 64 << 10;
constexpr std::uint64_t kMemoryWindow = 4 << 10;

Error outside() {
  return {ErrorCode::kBadInput, "truncated or corrupt: a part lies outside the file"};
}

Result<> read_file(int fd, std::uint64_t offset, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n =
        ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0) {
      return Error(ErrorCode::kBadInput, "truncated while it was read");
    } else if (errno != EINTR) {
      return Error::os(errno, "read");
    }
  }
  return {};
}

}  // namespace

Result<ByteSource> ByteSource::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    const int err = errno;
    if (err == ENOENT || err == ENOTDIR) {
      return Error(ErrorCode::kNotFound, path + ": no such file", err);
    }
    if (err == EACCES || err == EPERM) {
      return Error(ErrorCode::kPermission, path + ": not readable for this user", err);
    }
    return Error::os(err, path);
  }
  return from_fd(std::move(fd), path);
}

Result<ByteSource> ByteSource::from_fd(Fd fd, const std::string& name) {
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0) return Error::os(errno, name);
  if (!S_ISREG(st.st_mode)) return Error(ErrorCode::kBadInput, name + ": not a regular file");
  ByteSource out(ImageSource::kFile, static_cast<std::uint64_t>(st.st_size));
  out.fd_ = std::move(fd);
  return out;
}

ByteSource ByteSource::from_bytes(std::vector<std::byte> bytes) {
  ByteSource out(ImageSource::kBytes, bytes.size());
  out.bytes_ = std::move(bytes);
  return out;
}

ByteSource ByteSource::from_memory(MemoryReader reader, RemoteAddr header) {
  ByteSource out(ImageSource::kProcessMemory, std::numeric_limits<std::uint64_t>::max());
  out.reader_ = std::move(reader);
  out.header_ = header;
  return out;
}

Result<Bytes> ByteSource::read(std::uint64_t position, std::uint64_t size) const {
  if (size > kMaxRead || position > size_ || size > size_ - position) return outside();
  auto bytes = Bytes::allocate(size);
  if (!bytes)
    return Error(ErrorCode::kOs, "no memory for " + std::to_string(size) + " bytes", ENOMEM);
  switch (kind_) {
    case ImageSource::kFile:
      TL_TRY(read_file(fd_.get(), position, bytes->span()));
      break;
    case ImageSource::kBytes:
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(position), size,
                  bytes->span().begin());
      break;
    case ImageSource::kProcessMemory:
      TL_TRY(reader_(RemoteAddr(position + bias_), bytes->span()));
      break;
  }
  return std::move(*bytes);
}

Result<Bytes> ByteSource::copy(std::uint64_t position, std::uint64_t size) const {
  return read(position, size);
}

Result<std::span<const std::byte>> ByteSource::header_bytes(std::uint64_t offset,
                                                            std::uint64_t size) const {
  if (kind_ != ImageSource::kProcessMemory) return view(offset, size, {offset, size_});
  if (size > kMaxRead) return outside();
  auto bytes = Bytes::allocate(size);
  if (!bytes) return Error(ErrorCode::kOs, "no memory", ENOMEM);
  TL_TRY(reader_(header_ + offset, bytes->span()));
  headers_.push_back(std::move(*bytes));
  return std::as_const(headers_.back()).span();
}

std::optional<std::span<const std::byte>> ByteSource::kept(std::uint64_t position,
                                                           std::uint64_t size) const {
  const auto part = [&](std::uint64_t begin, std::span<const std::byte> bytes) {
    const std::uint64_t skip = position - begin;
    return skip <= bytes.size() && size <= bytes.size() - skip
               ? std::optional(bytes.subspan(skip, size))
               : std::nullopt;
  };
  for (const Kept& k : long_reads_) {
    if (k.position > position) continue;
    if (auto found = part(k.position, k.bytes.span())) return found;
  }
  const auto next = windows_.upper_bound(position);
  if (next == windows_.begin()) return std::nullopt;
  return part(std::prev(next)->first, std::as_const(std::prev(next)->second).span());
}

Result<std::span<const std::byte>> ByteSource::view(std::uint64_t position, std::uint64_t size,
                                                    Extent extent) const {
  if (size > kMaxRead || position > size_ || size > size_ - position) return outside();
  if (kind_ == ImageSource::kBytes)
    return std::span<const std::byte>(bytes_).subspan(position, size);
  if (size == 0) return std::span<const std::byte>();
  if (const auto found = kept(position, size)) return *found;

  const std::uint64_t window = kind_ == ImageSource::kFile ? kFileWindow : kMemoryWindow;
  if (size < window) {
    const std::uint64_t begin =
        std::max(position - position % window, std::min(extent.begin, position));
    const std::uint64_t end =
        std::max(position + size, std::min({begin + window, extent.end, size_}));
    // A window may touch what cannot be read; then the exact range still may. A window that is
    // there already did not hold all of the range, which crosses its end.
    if (!windows_.contains(begin)) {
      if (auto bytes = read(begin, end - begin)) {
        const auto it = windows_.emplace(begin, std::move(*bytes)).first;
        return std::as_const(it->second).span().subspan(position - begin, size);
      }
    }
  }
  auto bytes = read(position, size);
  if (!bytes) return bytes.error();
  long_reads_.push_back({position, std::move(*bytes)});
  return std::as_const(long_reads_.back().bytes).span();
}

}  // namespace trapline::symbols
