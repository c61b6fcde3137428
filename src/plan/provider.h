// What a program says about probes that other programs define: `provider p { probe f(int); };`.
//
// `trapline -h` and `-G` are made from it (src/usdt); tracing does not use it. Types are reduced to
// what passing a value asks for.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trapline::plan {

enum class ProbeArgumentKind : std::uint8_t {
  kInteger,  // enums too
  kBool,
  kFloat,
  kString,  // string, char *
  kPointer,
  kFunctionPointer,
  kOther,  // structures, unions
};

struct ProbeArgument {
  std::string type;  // as declared: "char *"
  ProbeArgumentKind kind = ProbeArgumentKind::kOther;
  std::uint8_t size = 0;  // in bytes; 0: kOther
  bool is_signed = false;

  bool operator==(const ProbeArgument&) const = default;
};

struct ProviderProbe {
  std::string name;  // as declared: "request__start", which DTrace shows as request-start
  std::vector<ProbeArgument> arguments;
};

struct Provider {
  std::string name;
  std::uint32_t source = 0;  // of the compile request
  std::vector<ProviderProbe> probes;
};

// What DTrace allows: names of 63 characters, 255 arguments.
inline constexpr std::size_t kMaxProbeNameLength = 63;
inline constexpr std::size_t kMaxProbeArguments = 255;

}  // namespace trapline::plan
