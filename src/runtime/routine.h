// D's string subroutines in a body: wire/text.h, each as one function that is not inlined. A text
// result is the address of `out`, or 0 for NULL; operands have been checked by the body.

#pragma once

#include "runtime/text.h"
#include "wire/text.h"
#include "wire/text_json.h"

namespace trapline::runtime {

inline constexpr uint64_t kFamilyInet = 2;       // AF_INET
inline constexpr uint64_t kFamilyInet6 = 10;     // AF_INET6
inline constexpr uint64_t kLinkEthernet = 1;     // ARPHRD_ETHER
inline constexpr uint64_t kLinkInfiniband = 32;  // ARPHRD_INFINIBAND

inline uint64_t result(const Byte* out) { return reinterpret_cast<uint64_t>(out); }

// `last`: strrchr.
TL_LARGE uint64_t tl_find_byte(Byte* out, const Byte* text, uint64_t byte, uint64_t last,
                               uint64_t size) {
  const int64_t at = wire::text_find_byte(text, static_cast<Byte>(byte), last != 0, size);
  if (at < 0) return 0;
  wire::text_copy(out, text + at, size, size);
  return result(out);
}

TL_LARGE uint64_t tl_find_text(Byte* out, const Byte* text, const Byte* wanted, uint64_t size) {
  const int64_t at = wire::text_index(text, wanted, 0, size);
  if (at < 0) return 0;
  wire::text_copy(out, text + at, size, size);
  return result(out);
}

TL_LARGE uint64_t tl_json(Byte* out, const Byte* json, const Byte* path, uint64_t size) {
  return wire::text_json(out, json, path, size) ? result(out) : 0;
}

TL_LARGE uint64_t tl_token(Byte* out, const Byte* text, const Byte* delimiters, uint64_t* state,
                           uint64_t size) {
  auto* kept = reinterpret_cast<wire::TokenState*>(state);
  return wire::text_token(out, text, delimiters, kept, size) ? result(out) : 0;
}

TL_LARGE void tl_substr(Byte* out, const Byte* text, uint64_t start, uint64_t count,
                        uint64_t has_count, uint64_t size) {
  wire::text_substr(out, text, static_cast<int64_t>(start), static_cast<int64_t>(count),
                    has_count != 0, size);
}

TL_LARGE uint64_t tl_index(const Byte* text, const Byte* wanted, uint64_t from, uint64_t size) {
  return static_cast<uint64_t>(wire::text_index(text, wanted, static_cast<int64_t>(from), size));
}
TL_LARGE uint64_t tl_rindex(const Byte* text, const Byte* wanted, uint64_t from, uint64_t size) {
  return static_cast<uint64_t>(wire::text_rindex(text, wanted, static_cast<int64_t>(from), size));
}

TL_LARGE void tl_basename(Byte* out, const Byte* path, uint64_t size) {
  wire::text_basename(out, path, size);
}
TL_LARGE void tl_dirname(Byte* out, const Byte* path, uint64_t size) {
  wire::text_dirname(out, path, size);
}
TL_LARGE void tl_cleanpath(Byte* out, const Byte* path, uint64_t size) {
  wire::text_cleanpath(out, path, size);
}

TL_LARGE void tl_lltostr(Byte* out, uint64_t value, uint64_t base, uint64_t size) {
  wire::text_from_number(out, static_cast<int64_t>(value), base, size);
}
TL_LARGE uint64_t tl_strtoll(const Byte* text, uint64_t base, uint64_t size) {
  return static_cast<uint64_t>(wire::text_to_number(text, base, size));
}
TL_LARGE void tl_change_case(Byte* out, const Byte* text, uint64_t upper, uint64_t size) {
  wire::text_change_case(out, text, upper != 0, size);
}

TL_LARGE void tl_ipv4(Byte* out, const Byte* address, uint64_t size) {
  wire::text_ipv4(out, address, size);
}
TL_LARGE void tl_ipv6(Byte* out, const Byte* address, uint64_t strict, uint64_t size) {
  wire::text_ipv6(out, address, strict != 0, size);
}
// 0: no such family.
TL_LARGE uint64_t tl_inet_ntop(Byte* out, uint64_t family, const Byte* address, uint64_t size) {
  if (family == kFamilyInet) {
    wire::text_ipv4(out, address, size);
  } else if (family == kFamilyInet6) {
    wire::text_ipv6(out, address, true, size);
  } else {
    return 0;
  }
  return result(out);
}
TL_LARGE uint64_t tl_link_ntop(Byte* out, uint64_t type, const Byte* address, uint64_t size) {
  if (type != kLinkEthernet && type != kLinkInfiniband) return 0;
  wire::text_link(out, address, type == kLinkEthernet ? 6 : 20, size);
  return result(out);
}

}  // namespace trapline::runtime
