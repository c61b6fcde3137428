// Reads the relocatable ELF object that LLVM emitted: code and read-only data put together,
// references between them resolved, stack sizes read. A reference that leads out of the object is
// an error.
//
// Source: System V ABI, chapters 4 (object files) and x86-64 psABI 4.4 (relocation).

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace trapline::codegen {

struct LinkedObject {
  std::vector<std::byte> bytes;
  std::uint32_t code_size = 0;                       // from offset 0
  std::uint32_t constants_offset = 0;                // read-only data, up to the end
  std::map<std::string, std::uint32_t> functions;    // offset by name
  std::map<std::string, std::uint32_t> stack_sizes;  // bytes, without the return address, by name
};

// Errors: kInternal: not such an object, or it refers to something outside, or has writable data.
Result<LinkedObject> link_object(std::span<const std::byte> elf);

}  // namespace trapline::codegen
