#include "session/processors.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace trapline::session {

namespace {

// sysfs-devices-system-cpu of the kernel's ABI; 0 where it does not say.
plan::ProcessorInfo describe(std::int32_t number) {
  const std::filesystem::path folder = fmt::format("/sys/devices/system/cpu/cpu{}", number);
  plan::ProcessorInfo info;
  info.id = number;
  std::ifstream package(folder / "topology/physical_package_id");
  if (std::int32_t chip = 0; package >> chip) info.chip = std::max(chip, 0);
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node")) continue;
    (void)std::from_chars(name.data() + 4, name.data() + name.size(), info.group);
  }
  return info;
}

}  // namespace

std::uint32_t processor_count() {
  return static_cast<std::uint32_t>(std::max(::sysconf(_SC_NPROCESSORS_CONF), 1L));
}

void fill_processors(const plan::Program& program, std::span<std::byte> globals) {
  if (program.processors_variable == plan::kNone) return;
  const plan::Variable& table = program.variables[program.processors_variable];
  const std::size_t count = table.type.size / sizeof(plan::ProcessorInfo);
  for (std::size_t i = 0; i < count; ++i) {
    const plan::ProcessorInfo info = describe(static_cast<std::int32_t>(i));
    std::memcpy(globals.data() + table.offset + i * sizeof(info), &info, sizeof(info));
  }
}

}  // namespace trapline::session
