#include "report/text_output.h"

#include <algorithm>
#include <array>
#include <cinttypes>

#include "report/aggregation_text.h"
#include "report/format.h"
#include "report/text.h"

namespace trapline::report {
namespace {

using consume::Value;
using plan::ValueKind;

std::string_view fault_name(plan::Fault fault) {
  using plan::Fault;
  switch (fault) {
    case Fault::kBadAddress:
      return "invalid address";
    case Fault::kBadAlignment:
      return "invalid alignment";
    case Fault::kIllegalOperation:
      return "illegal operation";
    case Fault::kDivideByZero:
      return "divide-by-zero";
    case Fault::kNoScratch:
      return "out of scratch space";
    case Fault::kKernelPrivilege:
      return "invalid kernel access";
    case Fault::kUserPrivilege:
      return "invalid user access";
    case Fault::kTupleOverflow:
      return "tuple stack overflow";
    case Fault::kBadStack:
      return "bad stack";
    case Fault::kBadSize:
      return "invalid size";
    case Fault::kBadIndex:
      return "index out of bounds";
    case Fault::kNoFault:
      break;
  }
  return "unknown fault";
}

// Signed and unsigned, by size; quiet mode prints the bare number.
void append_traced_integer(std::string& out, const Value& value, bool quiet) {
  static constexpr std::array<int, 9> kSigned{0, 3, 5, 0, 10, 0, 0, 0, 19};
  static constexpr std::array<int, 9> kUnsigned{0, 3, 5, 0, 10, 0, 0, 0, 20};
  const std::size_t size = value.type.size <= 8 ? value.type.size : 8;
  if (!quiet) out += ' ';
  if (value.type.is_signed) {
    append(out, "%*" PRId64, quiet ? 0 : kSigned[size], value.as_signed());
  } else {
    append(out, "%*" PRIu64, quiet ? 0 : kUnsigned[size], value.integer);
  }
}

std::string raw_bytes(const Value& value) {
  std::string out = value.bytes;
  if (value.type.kind == ValueKind::kInteger) {
    const auto* bytes = reinterpret_cast<const char*>(&value.integer);
    out.assign(bytes, std::min<std::size_t>(value.type.size, 8));
  }
  out.resize(value.type.size, '\0');
  return out;
}

std::string where_text(const FiringInfo& firing) {
  const plan::ProbeName& probe = *firing.probe;
  return "dt_clause_" + std::to_string(firing.clause) + " for probe ID " +
         std::to_string(probe.id) + " (" + probe.provider + ":" + probe.module + ":" +
         probe.function + ":" + probe.name + ")";
}

bool ends_with_word(std::string_view name, std::string_view word) {
  return name.ends_with(word) &&
         (name.size() == word.size() || name[name.size() - word.size() - 1] == '-');
}

std::string plural(std::uint64_t count, std::string_view what) {
  return std::to_string(count) + " " + std::string(what) + (count > 1 ? "s" : "");
}

}  // namespace

TextOutput::TextOutput(const plan::Program& program, ByteSink& out, ByteSink& err,
                       PrintOptions options)
    : program_(program), out_(out), err_(err), options_(std::move(options)) {}

Result<> TextOutput::write_pending() {
  if (pending_.empty()) return {};
  auto result = out_.write(pending_);
  pending_.clear();
  return result;
}

// Printed with the first firing that has data, not before.
void TextOutput::append_heading() {
  if (heading_done_) return;
  heading_done_ = true;
  if (options_.flowindent) {
    if (options_.testing) return append(pending_, "%-41s\n", "FUNCTION");
    return append(pending_, "%3s %-41s\n", "CPU", "FUNCTION");
  }
  if (options_.quiet) return;
  if (options_.testing) return append(pending_, "%32s\n", "FUNCTION:NAME");
  append(pending_, "%3s %6s %32s\n", "CPU", "ID", "FUNCTION:NAME");
}

Result<> TextOutput::begin_firing(const FiringInfo& firing) {
  append_heading();
  if (options_.flowindent) {
    append_flow(firing);
    return {};
  }
  if (options_.quiet) return {};
  const std::string name = firing.probe->function + ":" + firing.probe->name;
  if (options_.testing) {
    append(pending_, "%32s ", name.c_str());
  } else {
    append(pending_, "%3d %6d %32s ", static_cast<int>(firing.cpu),
           static_cast<int>(firing.probe->id), name.c_str());
  }
  return {};
}

// -F. A return is printed one step further out than what is in the function; a second clause at the
// same entry is not an entry of its own. Indentation is kept a thread, as one thread's calls nest
// in each other.
void TextOutput::append_flow(const FiringInfo& firing) {
  Flow& flow = flows_[firing.tid];
  const bool syscall = firing.probe->provider == "syscall";
  bool entry = ends_with_word(firing.probe->name, "entry");
  const bool leave = !entry && ends_with_word(firing.probe->name, "return");
  if (entry && flow.last_probe == firing.probe->id && flow.last_clause != firing.clause)
    entry = false;
  if (leave && flow.indent > 0) flow.indent -= 2;

  std::string text(static_cast<std::size_t>(flow.indent), ' ');
  if (entry) {
    text += syscall ? " => " : " -> ";
  } else if (leave) {
    text += syscall ? " <= " : " <- ";
  } else {
    text += "| ";
  }
  text += firing.probe->function;
  if (!entry && !leave) text += ":" + firing.probe->name;
  if (options_.testing) {
    append(pending_, "%-41s ", text.c_str());
  } else {
    append(pending_, "%3d %-41s ", static_cast<int>(firing.cpu), text.c_str());
  }
  if (entry) flow.indent += 2;
  flow.last_probe = firing.probe->id;
  flow.last_clause = firing.clause;
}

Result<> TextOutput::trace(const Value& value) {
  if (options_.rawbytes || value.type.kind == ValueKind::kBytes) {
    append_hex_dump(pending_, raw_bytes(value));
  } else if (value.type.kind == ValueKind::kInteger) {
    append_traced_integer(pending_, value, options_.quiet);
  } else {
    append(pending_, options_.quiet ? "%s" : "  %-33s", value.bytes.c_str());
  }
  return {};
}

Result<> TextOutput::printf(const plan::Action& action, std::span<const Value> fields) {
  append_format(pending_, action.format, {fields, {}, &options_});
  return {};
}

Result<> TextOutput::printa(const plan::Action& action, std::span<const Value> /*fields*/,
                            consume::AggregationStore& store) {
  std::size_t count = 0;
  if (!action.has_format) {
    pending_ += '\n';
    count = append_aggregations(pending_, action.aggregations, store, options_);
  } else {
    const auto rows = store.rows(action.aggregations, options_.sort);
    count = rows.size();
    std::vector<AggregationValue> shown(action.aggregations.size());
    for (const auto& row : rows) {
      for (std::size_t i = 0; i < shown.size(); ++i) {
        const std::uint32_t index = action.aggregations[i];
        if (index >= program_.aggregations.size()) continue;
        shown[i] = {&program_.aggregations[index], row.data[i], store.normal(index)};
      }
      append_format(pending_, action.format, {*row.components, shown, &options_});
    }
  }
  // Only what was really shown counts as printed.
  if (count != 0) {
    for (const std::uint32_t index : action.aggregations) {
      if (action.aggregations.size() > 1 || !store.empty(index)) store.set_printed(index);
    }
  }
  return {};
}

Result<> TextOutput::freopen(const std::string& path) {
  TL_TRY(write_pending());
  return out_.reopen(path);
}

Result<> TextOutput::ftruncate() {
  TL_TRY(write_pending());
  return out_.truncate();
}

Result<> TextOutput::exit(std::int32_t) { return {}; }

Result<> TextOutput::end_firing() {
  if (!options_.quiet) pending_ += '\n';
  return write_pending();
}

Result<> TextOutput::fault(const FaultInfo& fault) {
  TL_TRY(write_pending());
  return err_.write(options_.program_name + ": " + fault_message(fault) + "\n");
}

Result<> TextOutput::failed(const FiringInfo& firing, const std::string& text) {
  TL_TRY(write_pending());
  return err_.write(options_.program_name + ": error in " + where_text(firing) + ": " + text +
                    "\n\n");
}

Result<> TextOutput::drops(const consume::Drops& drops) {
  const auto say = [&](std::uint64_t count, std::string_view tag, std::string_view what,
                       std::string_view rest) -> Result<> {
    if (count == 0) return {};
    std::string line = options_.program_name + ": ";
    if (options_.droptags) line += "[" + std::string(tag) + "] ";
    return err_.write(line + plural(count, what) + std::string(rest) + "\n");
  };
  // A ring belongs to a thread, not to a CPU; DTrace's words want one.
  TL_TRY(say(drops.record, "DTRACEDROP_PRINCIPAL", "drop", " on CPU 0"));
  TL_TRY(say(drops.aggregation, "DTRACEDROP_AGGREGATION", "aggregation drop", " on CPU 0"));
  TL_TRY(say(drops.dynamic, "DTRACEDROP_DYNAMIC", "dynamic variable drop", ""));
  TL_TRY(say(drops.speculative, "DTRACEDROP_SPEC", "speculative drop", ""));
  TL_TRY(say(drops.speculation, "DTRACEDROP_SPECUNAVAIL", "failed speculation",
             " (no speculative buffer available)"));
  TL_TRY(say(drops.level, "TRAPLINEDROP_NESTING", "drop", " (probes nested too deeply)"));
  TL_TRY(say(drops.no_slot, "TRAPLINEDROP_THREADS", "drop", " (too many threads)"));
  TL_TRY(say(drops.samples, "TRAPLINEDROP_SAMPLES", "profile drop", ""));
  return say(drops.malformed, "TRAPLINEDROP_DAMAGED", "drop",
             " (trace buffer damaged by the process)");
}

Result<> TextOutput::finish(consume::AggregationStore& store) {
  std::string text = "\n";
  const auto count = static_cast<std::uint32_t>(program_.aggregations.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    // aggsortrev turns the order of the aggregations round, too.
    const std::uint32_t index = options_.sort.reversed ? count - 1 - i : i;
    if (store.printed(index)) continue;
    append_aggregations(text, std::array{index}, store, options_);
  }
  pending_ += text;
  TL_TRY(write_pending());
  return flush();
}

Result<> TextOutput::flush() {
  TL_TRY(write_pending());
  TL_TRY(out_.flush());
  return err_.flush();
}

std::string list_heading() {
  std::string out;
  append(out, "%5s %10s %17s %33s %s\n", "ID", "PROVIDER", "MODULE", "FUNCTION", "NAME");
  return out;
}

std::string list_row(const plan::ProbeName& probe) {
  std::string out;
  append(out, "%5d %10s %17s %33s %s\n", static_cast<int>(probe.id), probe.provider.c_str(),
         probe.module.c_str(), probe.function.c_str(), probe.name.c_str());
  return out;
}

std::string matched_message(std::string_view what, std::string_view text, std::uint64_t probes) {
  return std::string(what) + " '" + std::string(text) + "' matched " + std::to_string(probes) +
         (probes == 1 ? " probe" : " probes");
}

// The words of Oracle's DTrace, down to the "BPF pc", which is the number of the instruction in the
// clause here: tools that read them exist.
std::string fault_message(const FaultInfo& fault) {
  std::string out =
      "error in " + where_text(fault.firing) + ": " + std::string(fault_name(fault.fault));
  const auto address = static_cast<unsigned long long>(fault.address);
  switch (fault.fault) {
    case plan::Fault::kBadAddress:
      if (fault.address == ~std::uint64_t{0}) break;
      [[fallthrough]];
    case plan::Fault::kBadAlignment:
    case plan::Fault::kBadStack:
    case plan::Fault::kBadSize:
      append(out, " (0x%llx)", address);
      break;
    case plan::Fault::kBadIndex:
      append(out, " (%lld)", static_cast<long long>(address));
      break;
    default:
      break;
  }
  append(out, " at BPF pc %" PRIu32, fault.instruction);
  return out;
}

}  // namespace trapline::report
