// The build compiles src/runtime to a file; the assembler includes its bytes here.

#include "codegen/runtime_bitcode.h"

__asm__(
    ".pushsection .rodata.trapline_runtime, \"a\", @progbits\n"
    ".balign 16\n"
    ".hidden trapline_runtime_bitcode_begin\n"
    ".globl trapline_runtime_bitcode_begin\n"
    "trapline_runtime_bitcode_begin:\n"
    ".incbin \"" TRAPLINE_RUNTIME_BITCODE
    "\"\n"
    ".hidden trapline_runtime_bitcode_end\n"
    ".globl trapline_runtime_bitcode_end\n"
    "trapline_runtime_bitcode_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" const char trapline_runtime_bitcode_begin[];
extern "C" const char trapline_runtime_bitcode_end[];

namespace trapline::codegen {

std::string_view runtime_bitcode() {
  return {trapline_runtime_bitcode_begin, trapline_runtime_bitcode_end};
}

}  // namespace trapline::codegen
