#include "consume/value.h"

#include <algorithm>
#include <cstring>

namespace trapline::consume {
namespace {

std::uint64_t extend(std::uint64_t raw, const plan::ValueType& type) {
  if (type.size == 0 || type.size >= 8) return raw;
  const unsigned shift = 64 - 8 * type.size;
  raw <<= shift;
  if (!type.is_signed) return raw >> shift;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(raw) >> shift);
}

}  // namespace

Value decode_field(const plan::Field& field, std::span<const std::byte> payload) {
  Value out;
  out.type = field.type;
  const std::size_t start = std::min<std::size_t>(field.offset, payload.size());
  const std::size_t have = std::min<std::size_t>(field.type.size, payload.size() - start);
  const auto bytes = payload.subspan(start, have);
  if (field.type.kind == plan::ValueKind::kInteger) {
    std::uint64_t raw = 0;
    if (!bytes.empty()) std::memcpy(&raw, bytes.data(), std::min<std::size_t>(bytes.size(), 8));
    out.integer = extend(raw, field.type);
    return out;
  }
  out.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (field.type.kind == plan::ValueKind::kString) {
    out.bytes.resize(std::min(out.bytes.size(), out.bytes.find('\0')));
  }
  return out;
}

std::optional<std::vector<Value>> decode_key(std::span<const plan::ValueType> types,
                                             std::span<const std::uint64_t> key) {
  std::vector<Value> out;
  out.reserve(types.size());
  std::size_t at = 0;
  for (const auto& type : types) {
    if (at >= key.size()) return std::nullopt;
    Value value;
    value.type = type;
    if (type.kind == plan::ValueKind::kInteger) {
      value.integer = extend(key[at++], type);
    } else if (type.kind == plan::ValueKind::kBytes) {
      const std::uint64_t words = (std::uint64_t{type.size} + 7) / 8;
      if (words > key.size() - at) return std::nullopt;
      value.bytes.assign(reinterpret_cast<const char*>(key.data() + at), type.size);
      at += words;
    } else {
      const std::uint64_t length = key[at++];
      const std::uint64_t words = length / 8 + (length % 8 != 0);
      if (words > key.size() - at) return std::nullopt;
      value.bytes.assign(reinterpret_cast<const char*>(key.data() + at), length);
      at += words;
      if (type.kind == plan::ValueKind::kString) {
        value.bytes.resize(std::min(value.bytes.size(), value.bytes.find('\0')));
      }
    }
    out.push_back(std::move(value));
  }
  if (at != key.size()) return std::nullopt;
  return out;
}

Key encode_key(std::span<const Value> components) {
  Key out;
  for (const auto& value : components) {
    if (value.type.kind == plan::ValueKind::kInteger) {
      out.push_back(value.integer);
      continue;
    }
    if (value.type.kind == plan::ValueKind::kString) out.push_back(value.bytes.size());
    const std::size_t at = out.size();
    out.resize(at + (value.bytes.size() + 7) / 8);
    if (!value.bytes.empty()) std::memcpy(&out[at], value.bytes.data(), value.bytes.size());
  }
  return out;
}

}  // namespace trapline::consume
