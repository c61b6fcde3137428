#include "session/d_libraries.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "dlang/dependencies.h"
#include "session/source_loader.h"

namespace trapline::session {

namespace {

namespace fs = std::filesystem;

enum class Visit : std::uint8_t { kNotYet, kOnTheWay, kDone };

struct Node {
  DLibrary library;
  std::vector<dlang::Dependency> dependencies;
  Visit visit = Visit::kNotYet;
  bool usable = true;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

Result<> read_folder(const std::string& folder, std::vector<Node>& nodes) {
  std::error_code error;
  std::vector<std::string> paths;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".d") paths.push_back(it->path().string());
  }
  if (error) return Error::os(error.value(), "failed to read the folder of D libraries " + folder);
  std::ranges::sort(paths);
  for (const std::string& path : paths) {
    TL_TRY_ASSIGN(std::string text, read_script(path));
    Node& node = nodes.emplace_back();
    node.dependencies = dlang::read_dependencies(text);
    node.library = {path, std::move(text)};
  }
  return {};
}

// The library `name` as another one in `folder` means it: that of the same folder first.
Node* find(std::vector<Node>& nodes, const fs::path& folder, const std::string& name) {
  Node* found = nullptr;
  for (Node& node : nodes) {
    const fs::path path = node.library.path;
    if (path.filename() != name) continue;
    if (path.parent_path() == folder) return &node;
    if (found == nullptr) found = &node;
  }
  return found;
}

// Depth first. Its own stack, as the files are the user's.
Result<> order(std::vector<Node>& nodes, Node& start, std::vector<Node*>& out) {
  struct Step {
    Node* node;
    std::size_t next = 0;
  };
  std::vector<Step> stack;
  const auto enter = [&](Node& node) {
    node.visit = Visit::kOnTheWay;
    stack.push_back({&node});
  };
  if (start.visit == Visit::kNotYet) enter(start);
  while (!stack.empty()) {
    Step& step = stack.back();
    Node& node = *step.node;
    if (step.next == node.dependencies.size()) {
      node.visit = Visit::kDone;
      stack.pop_back();
      if (!stack.empty() && !node.usable) stack.back().node->usable = false;
      if (node.usable) out.push_back(&node);
      continue;
    }
    const dlang::Dependency& dependency = node.dependencies[step.next++];
    if (dependency.kind != dlang::DependencyKind::kLibrary) {
      static constexpr std::string_view kProviders[] = {"dtrace", "pid", "profile"};
      const bool offered = dependency.kind == dlang::DependencyKind::kProvider &&
                           std::ranges::find(kProviders, dependency.name) != std::end(kProviders);
      if (!offered) node.usable = false;
      continue;
    }
    Node* const other = find(nodes, fs::path(node.library.path).parent_path(), dependency.name);
    if (other == nullptr) {
      return Error(ErrorCode::kBadInput, "the D library " + node.library.path + " depends on " +
                                             dependency.name +
                                             ", which is in none of the folders of -L");
    }
    if (other->visit == Visit::kOnTheWay) {
      return Error(ErrorCode::kBadInput, "D libraries depend on each other in a circle: " +
                                             node.library.path + " on " + dependency.name);
    }
    if (other->visit == Visit::kNotYet) {
      enter(*other);
    } else if (!other->usable) {
      node.usable = false;
    }
  }
  return {};
}

}  // namespace

Result<std::vector<DLibrary>> read_libraries(const plan::Options& options) {
  std::vector<DLibrary> libraries;
  if (options.flag("nolibs")) return libraries;
  std::vector<Node> nodes;
  for (const char* option : {"syslibdir", "libdir"}) {
    for (const std::string& folder : lines_of(options.text(option)))
      TL_TRY(read_folder(folder, nodes));
  }
  std::vector<Node*> ordered;
  for (Node& node : nodes) TL_TRY(order(nodes, node, ordered));
  for (Node* node : ordered) libraries.push_back(std::move(node->library));
  return libraries;
}

}  // namespace trapline::session
