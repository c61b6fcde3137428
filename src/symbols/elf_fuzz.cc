// Damaged and hostile ELF files: nothing may crash, hang, or read outside.

#include <cstddef>
#include <cstdint>
#include <span>

#include "symbols/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trapline::symbols::exercise_bytes(std::as_bytes(std::span(data, size)));
  return 0;
}
