// What a D library says that it depends on, found without compiling it.
#pragma once

#include <string>
#include <vector>

namespace trapline::dlang {

enum class DependencyKind : std::uint8_t { kLibrary, kModule, kProvider };

struct Dependency {
  DependencyKind kind = DependencyKind::kLibrary;
  std::string name;
};

// The `#pragma D depends_on` lines of a library, in their order. What is wrong in the text is not
// reported: that is said when it is compiled.
std::vector<Dependency> read_dependencies(const std::string& text);

}  // namespace trapline::dlang
