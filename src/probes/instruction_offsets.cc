#include "probes/instruction_offsets.h"

#include <algorithm>
#include <set>

#include "probes/module_code.h"

namespace trapline::probes {

std::vector<std::uint64_t> InstructionOffsets::of(const MatchedFunction& function) {
  if (!code_)
    code_ = read_module_code(modules_.module(module_), table_, modules_.code_facts(module_));
  std::set<std::uint64_t> offsets;
  for (const symbols::Symbol& place : function.places) {
    const isa::CodeRange range{place.address, place.address + place.size};
    for (const isa::Instruction& i : isa::analyze_function(*code_, range).instructions) {
      if (range.contains(LinkAddr(i.address))) offsets.insert(i.address - place.address.value());
    }
  }
  return {offsets.begin(), offsets.end()};
}

}  // namespace trapline::probes
