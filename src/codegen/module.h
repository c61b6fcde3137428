// One LLVM module: the runtime's functions, to which the bodies are added.

#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/arena.h"

namespace trapline::codegen {

class Module {
 public:
  // Errors: kInternal: the embedded bitcode cannot be read.
  static Result<std::unique_ptr<Module>> create(const wire::Layout& layout);

  llvm::LLVMContext& context() { return context_; }
  llvm::Module& ir() { return *module_; }

  // A call of a function of the runtime, with its calling convention. Integers are cut or
  // zero-extended to what the function takes, and turned into pointers where it takes one. A
  // function that is not there is reported by verify().
  llvm::Value* call(llvm::IRBuilder<>& builder, std::string_view name,
                    std::initializer_list<llvm::Value*> arguments);

  // Reads what is needed of the runtime; to be called when all bodies are there.
  // Errors: kInternal: the embedded bitcode cannot be read.
  Result<> complete();

  // Errors: kInternal: a runtime function was missing, LLVM's verifier found a fault, or it
  // reported an error.
  Result<> verify();

  // The text of what LLVM reported as an error so far; empty: nothing.
  const std::string& reported() const { return reported_; }

 private:
  Module() = default;
  Result<> read_runtime();
  void define_layout(const wire::Layout& layout);

  llvm::LLVMContext context_;
  std::unique_ptr<llvm::Module> module_;
  std::string reported_;
};

}  // namespace trapline::codegen
