// See optimize.h. What holds for the runtime's own compilation (no vector registers, no red zone,
// no library calls) is set again on every function, since bodies are new and since inlining only
// mixes functions of equal features.

#include "codegen/optimize.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <algorithm>
#include <mutex>

namespace trapline::codegen {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";
constexpr const char* kCpu = "x86-64";
constexpr const char* kFeatures = "-mmx,-sse,-sse2,-avx,-x87";

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();  // for inline assembly
  });
}

Result<std::unique_ptr<llvm::TargetMachine>> create_machine(Effort effort) {
  initialize_llvm();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (target == nullptr) return Error(ErrorCode::kInternal, "LLVM: " + error);
  llvm::TargetOptions options;
  options.EmitStackSizeSection = true;
  options.NoTrapAfterNoreturn = true;
  const auto level =
      effort == Effort::kQuick ? llvm::CodeGenOptLevel::Less : llvm::CodeGenOptLevel::Default;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      kTriple, kCpu, kFeatures, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, level));
  if (machine == nullptr) return Error(ErrorCode::kInternal, "LLVM: no machine for x86-64");
  return machine;
}

void set_attributes(llvm::Function& function) {
  function.addFnAttr(llvm::Attribute::NoUnwind);
  function.addFnAttr(llvm::Attribute::NoRedZone);
  function.addFnAttr(llvm::Attribute::NoImplicitFloat);
  function.removeFnAttr(llvm::Attribute::UWTable);
  function.addFnAttr("no-builtins");
  function.addFnAttr("no-jump-tables", "true");
  function.addFnAttr("frame-pointer", "none");
  function.addFnAttr("target-cpu", kCpu);
  function.addFnAttr("target-features", kFeatures);
  function.removeFnAttr("tune-cpu");
  function.removeFnAttr("min-legal-vector-width");
}

void internalize(llvm::Module& module, const std::vector<std::string>& bodies) {
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    set_attributes(function);
    function.setComdat(nullptr);
    if (std::find(bodies.begin(), bodies.end(), function.getName().str()) == bodies.end()) {
      function.setVisibility(llvm::GlobalValue::DefaultVisibility);
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
    } else {
      function.setVisibility(llvm::GlobalValue::HiddenVisibility);
    }
  }
}

// What bodies call is not inlined into them. Its own helpers are, once for all bodies.
void keep_runtime_apart(llvm::Module& module) {
  for (llvm::Function& function : module) {
    if (!function.getName().starts_with("tl_")) continue;
    function.removeFnAttr(llvm::Attribute::AlwaysInline);
    function.addFnAttr(llvm::Attribute::NoInline);
  }
}

// Registers instead of variables, and no more.
llvm::ModulePassManager quick_pipeline() {
  llvm::FunctionPassManager functions;
  functions.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  functions.addPass(llvm::EarlyCSEPass());
  functions.addPass(llvm::SimplifyCFGPass());
  llvm::ModulePassManager pipeline;
  pipeline.addPass(llvm::AlwaysInlinerPass());
  pipeline.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(functions)));
  pipeline.addPass(llvm::GlobalDCEPass());
  return pipeline;
}

void optimize(llvm::Module& module, llvm::TargetMachine& machine, Effort effort) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false;
  tuning.LoopInterleaving = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  if (effort == Effort::kQuick) {
    keep_runtime_apart(module);
    quick_pipeline().run(module, modules);
  } else {
    builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
  }
}

Result<CallGraph> call_graph(const llvm::Module& module) {
  CallGraph graph;
  for (const llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    std::vector<std::string>& called = graph[function.getName().str()];
    for (const llvm::BasicBlock& block : function) {
      for (const llvm::Instruction& instruction : block) {
        const auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction);
        if (call == nullptr || call->isInlineAsm()) continue;
        const llvm::Function* callee = call->getCalledFunction();
        if (callee == nullptr)
          return Error(ErrorCode::kInternal, "code generation: an indirect call");
        if (!callee->isIntrinsic()) called.push_back(callee->getName().str());
      }
    }
  }
  return graph;
}

}  // namespace

Result<EmittedObject> emit_object(Module& module, const std::vector<std::string>& bodies,
                                  Effort effort) {
  TL_TRY_ASSIGN(const auto machine, create_machine(effort));
  llvm::Module& ir = module.ir();
  ir.setTargetTriple(kTriple);
  ir.setDataLayout(machine->createDataLayout());
  TL_TRY(module.complete());
  internalize(ir, bodies);
  TL_TRY(module.verify());
  optimize(ir, *machine, effort);

  EmittedObject object;
  TL_TRY_ASSIGN(object.calls, call_graph(ir));
  llvm::raw_svector_ostream stream(object.elf);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return Error(ErrorCode::kInternal, "LLVM: cannot emit an object");
  }
  passes.run(ir);
  if (!module.reported().empty())
    return Error(ErrorCode::kInternal, "code generation: " + module.reported());
  return object;
}

}  // namespace trapline::codegen
