// See module.h.

#include "codegen/module.h"

#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>

#include <vector>

#include "codegen/runtime_bitcode.h"

namespace trapline::codegen {

Result<std::unique_ptr<Module>> Module::create(const wire::Layout& layout) {
  std::unique_ptr<Module> module(new Module);
  std::string* reported = &module->reported_;
  module->context_.setDiagnosticHandlerCallBack(
      [](const llvm::DiagnosticInfo* info, void* to) {
        if (info->getSeverity() != llvm::DS_Error) return;
        llvm::raw_string_ostream stream(*static_cast<std::string*>(to));
        llvm::DiagnosticPrinterRawOStream printer(stream);
        info->print(printer);
        stream << '\n';
      },
      reported);
  TL_TRY(module->read_runtime());
  module->define_layout(layout);
  return module;
}

Result<> Module::read_runtime() {
  const std::string_view bitcode = runtime_bitcode();
  const llvm::MemoryBufferRef buffer(llvm::StringRef(bitcode.data(), bitcode.size()), "runtime");
  auto parsed = llvm::getLazyBitcodeModule(
      buffer, context_);  // bodies of functions are read when they are needed
  if (!parsed) {
    return Error(ErrorCode::kInternal,
                 "the runtime's bitcode: " + llvm::toString(parsed.takeError()));
  }
  module_ = std::move(*parsed);
  return {};
}

// The runtime reads an external constant `tl_layout`; with a value given, the optimizer folds every
// read of it.
void Module::define_layout(const wire::Layout& layout) {
  llvm::GlobalVariable* declared = module_->getGlobalVariable("tl_layout");
  if (declared == nullptr) return;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&layout);
  llvm::Constant* value =
      llvm::ConstantDataArray::get(context_, llvm::ArrayRef<std::uint8_t>(bytes, sizeof(layout)));
  auto* defined = new llvm::GlobalVariable(*module_, value->getType(), true,
                                           llvm::GlobalValue::InternalLinkage, value, "layout");
  defined->setAlignment(llvm::Align(8));
  declared->replaceAllUsesWith(defined);
  declared->eraseFromParent();
}

// Reads the bodies of the runtime's functions that are called, directly or by each other, and drops
// the others.
Result<> Module::complete() {
  for (const char* list : {"llvm.used", "llvm.compiler.used"}) {
    if (llvm::GlobalVariable* used = module_->getGlobalVariable(list, true))
      used->eraseFromParent();
  }
  bool found = true;
  while (found) {
    found = false;
    for (llvm::Function& function : *module_) {
      if (!function.isMaterializable()) continue;
      function.removeDeadConstantUsers();  // the erased list
      if (function.use_empty()) continue;
      if (llvm::Error error = function.materialize()) {
        return Error(ErrorCode::kInternal,
                     "the runtime's bitcode: " + llvm::toString(std::move(error)));
      }
      found = true;
    }
  }
  for (llvm::Function& function : llvm::make_early_inc_range(*module_)) {
    if (function.isMaterializable()) function.eraseFromParent();
  }
  if (llvm::Error error = module_->materializeMetadata()) {
    return Error(ErrorCode::kInternal,
                 "the runtime's bitcode: " + llvm::toString(std::move(error)));
  }
  if (llvm::Error error = module_->materializeAll()) {
    return Error(ErrorCode::kInternal,
                 "the runtime's bitcode: " + llvm::toString(std::move(error)));
  }
  return {};
}

llvm::Value* Module::call(llvm::IRBuilder<>& builder, std::string_view name,
                          std::initializer_list<llvm::Value*> arguments) {
  llvm::Function* function = module_->getFunction(llvm::StringRef(name.data(), name.size()));
  if (function == nullptr || function->arg_size() != arguments.size()) {
    reported_ += "the runtime has no function " + std::string(name) + " of " +
                 std::to_string(arguments.size()) + " arguments\n";
    return llvm::PoisonValue::get(builder.getInt64Ty());
  }
  std::vector<llvm::Value*> converted;
  unsigned n = 0;
  for (llvm::Value* argument : arguments) {
    llvm::Type* wanted = function->getArg(n++)->getType();
    if (wanted->isPointerTy() && argument->getType()->isIntegerTy()) {
      argument = builder.CreateIntToPtr(argument, wanted);
    } else if (wanted->isIntegerTy() && argument->getType()->isPointerTy()) {
      argument = builder.CreatePtrToInt(argument, wanted);
    } else if (wanted->isIntegerTy()) {
      argument = builder.CreateZExtOrTrunc(argument, wanted);
    }
    converted.push_back(argument);
  }
  llvm::CallInst* call = builder.CreateCall(function, converted);
  call->setCallingConv(function->getCallingConv());
  return call;
}

Result<> Module::verify() {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (llvm::verifyModule(*module_, &stream)) reported_ += text;
  if (!reported_.empty()) return Error(ErrorCode::kInternal, "code generation: " + reported_);
  return {};
}

}  // namespace trapline::codegen
