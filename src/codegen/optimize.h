// From a module of IR to the bytes of an ELF object, with the properties that bodies must have.

#pragma once

#include <llvm/ADT/SmallVector.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "codegen/codegen.h"
#include "codegen/module.h"
#include "codegen/stack_bound.h"

namespace trapline::codegen {

struct EmittedObject {
  llvm::SmallVector<char, 0> elf;
  CallGraph calls;
};

// Optimises and emits. Functions named in `bodies` stay, all others become internal.
// Errors: kInternal: LLVM has no x86-64 back end, or reported an error.
Result<EmittedObject> emit_object(Module& module, const std::vector<std::string>& bodies,
                                  Effort effort);

}  // namespace trapline::codegen
