// The statically defined probes that a relocatable object (x.o) has sites of: provider and name of
// each note "stapsdt" in it. Their addresses are not known before the object is linked.

#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace trapline::symbols {

struct ObjectProbe {
  std::string provider;
  std::string name;  // "request__start"
  auto operator<=>(const ObjectProbe&) const = default;
};

// Sorted, each once. Errors name the file: kOs, kBadInput (no object file, an archive, damaged),
// kUnsupported (another machine).
Result<std::vector<ObjectProbe>> probes_of_object(const std::string& path);

}  // namespace trapline::symbols
