// A plan as text: for -S, for tests, for people. One line an instruction; registers are r0..,
// variables by name.

#include "plan/plan.h"

#include <fmt/format.h>

#include <iterator>

namespace trapline::plan {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string type_text(const ValueType& type) {
  switch (type.kind) {
    case ValueKind::kString:
      return fmt::format("string{}", type.size);
    case ValueKind::kBytes:
      return fmt::format("bytes{}", type.size);
    case ValueKind::kInteger:
      break;
  }
  if (type.is_pointer) return "pointer";
  if (type.is_char) return type.is_signed ? "char" : "uchar";
  return fmt::format("{}int{}", type.is_signed ? "" : "u", type.size * 8);
}

std::string types_text(const std::vector<ValueType>& types) {
  std::string out;
  for (const ValueType& type : types) {
    if (!out.empty()) out += ", ";
    out += type_text(type);
  }
  return out;
}

std::string_view kind_text(AggregationKind kind) {
  switch (kind) {
    case AggregationKind::kCount:
      return "count";
    case AggregationKind::kSum:
      return "sum";
    case AggregationKind::kMin:
      return "min";
    case AggregationKind::kMax:
      return "max";
    case AggregationKind::kAvg:
      return "avg";
    case AggregationKind::kStddev:
      return "stddev";
    case AggregationKind::kQuantize:
      return "quantize";
    case AggregationKind::kLquantize:
      return "lquantize";
    case AggregationKind::kLlquantize:
      return "llquantize";
  }
  return "?";
}

std::string_view scope_text(Scope scope) {
  switch (scope) {
    case Scope::kGlobal:
      return "global";
    case Scope::kSelf:
      return "self";
    case Scope::kThis:
      return "this";
  }
  return "?";
}

std::string_view builtin_text(std::int64_t value) {
  switch (static_cast<Builtin>(value)) {
    case Builtin::kPid:
      return "pid";
    case Builtin::kPpid:
      return "ppid";
    case Builtin::kTid:
      return "tid";
    case Builtin::kUid:
      return "uid";
    case Builtin::kGid:
      return "gid";
    case Builtin::kCpu:
      return "cpu";
    case Builtin::kProbeId:
      return "id";
    case Builtin::kTimestamp:
      return "timestamp";
    case Builtin::kWallTimestamp:
      return "walltimestamp";
    case Builtin::kVirtualTimestamp:
      return "vtimestamp";
    case Builtin::kErrno:
      return "errno";
    case Builtin::kRandom:
      return "rand";
    case Builtin::kEpid:
      return "epid";
    case Builtin::kUserCaller:
      return "ucaller";
    case Builtin::kUserStackDepth:
      return "ustackdepth";
    case Builtin::kProcessGroup:
      return "pgid";
    case Builtin::kPriority:
      return "priority";
    case Builtin::kExecname:
      return "execname";
    case Builtin::kProbeProvider:
      return "probeprov";
    case Builtin::kProbeModule:
      return "probemod";
    case Builtin::kProbeFunction:
      return "probefunc";
    case Builtin::kProbeName:
      return "probename";
  }
  return "?";
}

// The mnemonic of an operation on registers a and b.
std::string_view arithmetic_text(Op op) {
  switch (op) {
    case Op::kAdd:
      return "add";
    case Op::kSub:
      return "sub";
    case Op::kMul:
      return "mul";
    case Op::kDivSigned:
      return "div";
    case Op::kDivUnsigned:
      return "udiv";
    case Op::kRemSigned:
      return "rem";
    case Op::kRemUnsigned:
      return "urem";
    case Op::kAnd:
      return "and";
    case Op::kOr:
      return "or";
    case Op::kXor:
      return "xor";
    case Op::kShiftLeft:
      return "shl";
    case Op::kShiftRight:
      return "shr";
    case Op::kShiftRightSigned:
      return "sar";
    case Op::kEqual:
      return "eq";
    case Op::kNotEqual:
      return "ne";
    case Op::kLess:
      return "lt";
    case Op::kLessEqual:
      return "le";
    case Op::kLessUnsigned:
      return "ult";
    case Op::kLessEqualUnsigned:
      return "ule";
    case Op::kNegate:
      return "neg";
    case Op::kComplement:
      return "not";
    case Op::kCompareString:
      return "strcmp";
    case Op::kStringLength:
      return "strlen";
    case Op::kStringJoin:
      return "strjoin";
    case Op::kCopyIn:
      return "copyin";
    case Op::kCopyInString:
      return "copyinstr";
    case Op::kAlloca:
      return "alloca";
    case Op::kSpeculation:
      return "speculation";
    case Op::kCommit:
      return "commit";
    case Op::kDiscard:
      return "discard";
    case Op::kMove:
      return "";
    default:
      return "?";
  }
}

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program), out_(text_) {}

  std::string run() {
    for (std::size_t i = 0; i < program_.strings.size(); ++i) {
      fmt::format_to(out_, "string {} {}\n", i, quoted(program_.strings[i]));
    }
    for (const Variable& variable : program_.variables) print(variable);
    for (const Aggregation& aggregation : program_.aggregations) print(aggregation);
    if (program_.globals_size + program_.self_size + program_.this_size + program_.direct_size !=
        0) {
      fmt::format_to(out_, "sizes: globals {}, self {}, this {}, direct {}\n",
                     program_.globals_size, program_.self_size, program_.this_size,
                     program_.direct_size);
    }
    for (std::size_t i = 0; i < program_.clauses.size(); ++i) print(program_.clauses[i], i);
    return std::move(text_);
  }

 private:
  static std::string reg(Reg r) { return r == kNoReg ? "-" : fmt::format("r{}", r); }

  std::string variable_name(std::uint32_t index) const {
    if (index >= program_.variables.size()) return "?";
    const Variable& variable = program_.variables[index];
    if (variable.scope == Scope::kGlobal) return variable.name;
    return fmt::format("{}->{}", scope_text(variable.scope), variable.name);
  }

  std::string aggregation_name(std::uint32_t index) const {
    return index < program_.aggregations.size() ? "@" + program_.aggregations[index].name : "@?";
  }

  void print(const Variable& variable) {
    fmt::format_to(out_, "{} {}", scope_text(variable.scope), variable.name);
    if (variable.is_array) fmt::format_to(out_, "[{}]", types_text(variable.keys));
    fmt::format_to(out_, ": {} at {}", type_text(variable.type), variable.offset);
    if (variable.is_array)
      fmt::format_to(out_, ", {} cells of {}", variable.capacity, variable.cell_size);
    text_ += '\n';
  }

  void print(const Aggregation& aggregation) {
    fmt::format_to(out_, "@{}", aggregation.name);
    if (!aggregation.keys.empty()) fmt::format_to(out_, "[{}]", types_text(aggregation.keys));
    fmt::format_to(out_, ": {}", kind_text(aggregation.kind));
    if (aggregation.kind == AggregationKind::kLquantize) {
      fmt::format_to(out_, "({}, step {}, {} levels)", aggregation.parameters[0],
                     aggregation.parameters[1], aggregation.parameters[2]);
    } else if (aggregation.kind == AggregationKind::kLlquantize) {
      fmt::format_to(out_, "({}, {}, {}, {})", aggregation.parameters[0], aggregation.parameters[1],
                     aggregation.parameters[2], aggregation.parameters[3]);
    }
    if (aggregation.direct) {
      fmt::format_to(out_, ", direct {} words at {}", aggregation.direct_words,
                     aggregation.direct_offset);
    } else {
      fmt::format_to(out_, ", {} value words{}", aggregation.value_words,
                     aggregation.sparse ? ", sparse" : "");
    }
    text_ += '\n';
  }

  void print(const Clause& clause, std::size_t index) {
    fmt::format_to(out_, "clause {} line {}:", index, clause.line);
    for (const ProbeDescription& probe : clause.probes) {
      fmt::format_to(out_, " {}:{}:{}:{}", probe.provider, probe.module, probe.function,
                     probe.name);
    }
    text_ += '\n';
    if (clause.has_record) fmt::format_to(out_, "  record {} bytes\n", clause.record_size);
    if (clause.scratch_size != 0) fmt::format_to(out_, "  scratch {}\n", clause.scratch_size);
    for (std::size_t i = 0; i < clause.fields.size(); ++i) {
      fmt::format_to(out_, "  field {}: {} at {}\n", i, type_text(clause.fields[i].type),
                     clause.fields[i].offset);
    }
    for (const Action& action : clause.actions) print(action);
    for (std::size_t i = 0; i < clause.code.size(); ++i) {
      fmt::format_to(out_, "  {:3}: {}\n", i, instruction_text(clause.code[i]));
    }
  }

  static std::string conversion_text(const FormatItem& item) {
    if (item.conversion == 0) return quoted(item.text);
    std::string out = "%";
    if (item.is_aggregation) out += '@';
    out += item.flags;
    if (item.width == -2) {
      out += fmt::format("*[field {}]", item.width_field);
    } else if (item.width >= 0) {
      out += std::to_string(item.width);
    }
    if (item.precision == -2) {
      out += fmt::format(".*[field {}]", item.precision_field);
    } else if (item.precision >= 0) {
      out += fmt::format(".{}", item.precision);
    }
    out += item.length;
    out += item.conversion;
    if (item.value != kNone) out += fmt::format("<{}>", item.value);
    return out;
  }

  void print(const Action& action) {
    std::string_view name;
    switch (action.kind) {
      case ActionKind::kPrintf:
        name = "printf";
        break;
      case ActionKind::kTrace:
        name = "trace";
        break;
      case ActionKind::kPrinta:
        name = "printa";
        break;
      case ActionKind::kNormalize:
        name = "normalize";
        break;
      case ActionKind::kDenormalize:
        name = "denormalize";
        break;
      case ActionKind::kClear:
        name = "clear";
        break;
      case ActionKind::kTruncate:
        name = "trunc";
        break;
      case ActionKind::kExit:
        name = "exit";
        break;
      case ActionKind::kTracemem:
        name = "tracemem";
        break;
      case ActionKind::kPrint:
        name = "print";
        break;
      case ActionKind::kSystem:
        name = "system";
        break;
      case ActionKind::kFreopen:
        name = "freopen";
        break;
      case ActionKind::kFtruncate:
        name = "ftruncate";
        break;
      case ActionKind::kSetopt:
        name = "setopt";
        break;
      case ActionKind::kCommit:
        name = "commit";
        break;
      case ActionKind::kDiscard:
        name = "discard";
        break;
    }
    fmt::format_to(out_, "  action {}", name);
    for (const FormatItem& item : action.format) fmt::format_to(out_, " {}", conversion_text(item));
    for (const std::uint32_t index : action.aggregations)
      fmt::format_to(out_, " {}", aggregation_name(index));
    if (!action.fields.empty()) {
      text_ += " fields";
      for (const std::uint32_t field : action.fields) fmt::format_to(out_, " {}", field);
    }
    text_ += '\n';
  }

  static std::string operands_text(const Instruction& i) {
    std::string out;
    for (const Operand& operand : i.operands) {
      if (!out.empty()) out += ", ";
      out += fmt::format("{} {}", type_text(operand.type), reg(operand.reg));
    }
    return out;
  }

  std::string instruction_text(const Instruction& i) const {
    std::string out = body_text(i);
    if (i.scratch != kNone) out += fmt::format("  ; scratch {}", i.scratch);
    return out;
  }

  std::string body_text(const Instruction& i) const {
    switch (i.op) {
      case Op::kConst:
        return fmt::format("{} = {}", reg(i.dst), i.immediate);
      case Op::kString:
        return fmt::format("{} = string {}", reg(i.dst), i.immediate);
      case Op::kMove:
        return fmt::format("{} = {}", reg(i.dst), reg(i.a));
      case Op::kExtend:
        return fmt::format("{} = {}ext{} {}", reg(i.dst), i.is_signed ? "s" : "z", i.size * 8,
                           reg(i.a));
      case Op::kLoadMemory:
        return fmt::format("{} = {}load{} [{}]", reg(i.dst), i.is_signed ? "s" : "z", i.size * 8,
                           reg(i.a));
      case Op::kJump:
        return fmt::format("jump {}", i.target);
      case Op::kJumpIfZero:
        return fmt::format("if {} == 0 jump {}", reg(i.a), i.target);
      case Op::kJumpIfNotZero:
        return fmt::format("if {} != 0 jump {}", reg(i.a), i.target);
      case Op::kArgument:
        return fmt::format("{} = arg{}", reg(i.dst), i.immediate);
      case Op::kBuiltin:
        return fmt::format("{} = {}", reg(i.dst), builtin_text(i.immediate));
      case Op::kRegister:
        return fmt::format("{} = uregs[{}]", reg(i.dst), i.immediate);
      case Op::kLoad:
        return fmt::format("{} = {}", reg(i.dst), variable_name(i.variable));
      case Op::kStore:
        return fmt::format("{} = {}", variable_name(i.variable), reg(i.a));
      case Op::kLoadElement:
        return fmt::format("{} = {}[{}]", reg(i.dst), variable_name(i.variable), operands_text(i));
      case Op::kStoreElement:
        return fmt::format("{}[{}] = {}", variable_name(i.variable), operands_text(i), reg(i.a));
      case Op::kRemoveElement:
        return fmt::format("remove {}[{}]", variable_name(i.variable), operands_text(i));
      case Op::kStoreMemory:
        return fmt::format("store{} [{}] = {}", i.size * 8, reg(i.a), reg(i.b));
      case Op::kStoreString:
        return fmt::format("store string{} [{}] = {}", i.immediate, reg(i.a), reg(i.b));
      case Op::kCopyMemory:
      case Op::kCopyOut:
      case Op::kCopyOutString: {
        const std::string_view name = i.op == Op::kCopyMemory ? "copy"
                                      : i.op == Op::kCopyOut  ? "copyout"
                                                              : "copyoutstr";
        return fmt::format("{} {} bytes from [{}] to [{}]", name, reg(i.b), reg(i.a),
                           operands_text(i));
      }
      case Op::kCall: {
        const bool known = i.immediate >= 0 && i.immediate < static_cast<std::int64_t>(kRoutines);
        const std::string_view name =
            known ? routine_info(static_cast<Routine>(i.immediate)).name : "?";
        return fmt::format("{} = {}({})", reg(i.dst), name, operands_text(i));
      }
      case Op::kCheckIndex:
        return fmt::format("check {} < {}", reg(i.a), i.immediate);
      case Op::kByteSwap:
        return fmt::format("{} = swap{} {}", reg(i.dst), i.size * 8, reg(i.a));
      case Op::kSpeculate:
        return fmt::format("speculate {}", reg(i.a));
      case Op::kRaise:
        return fmt::format("raise {}", reg(i.a));
      case Op::kStop:
        return "stop";
      case Op::kChill:
        return fmt::format("chill {}", reg(i.a));
      case Op::kReserve:
        return "reserve";
      case Op::kField:
        return fmt::format("field {} = {}", i.immediate, reg(i.a));
      case Op::kAggregate: {
        std::string out = aggregation_name(i.variable);
        if (!i.operands.empty()) out += fmt::format("[{}]", operands_text(i));
        out += " <-";
        if (i.a != kNoReg) out += " " + reg(i.a);
        if (i.b != kNoReg) out += " weight " + reg(i.b);
        return out;
      }
      case Op::kExit:
        return fmt::format("exit {}", reg(i.a));
      case Op::kEnd:
        return "end";
      default:
        break;
    }
    std::string out = fmt::format("{} = {}", reg(i.dst), arithmetic_text(i.op));
    if (i.a != kNoReg) out += " " + reg(i.a);
    if (i.b != kNoReg) out += " " + reg(i.b);
    return out;
  }

  const Program& program_;
  std::string text_;
  Out out_;
};

}  // namespace

const RoutineInfo& routine_info(Routine routine) {
  static constexpr RoutineInfo kAll[kRoutines] = {
      {"strchr", "tn", 't'},     {"strrchr", "tn", 't'},   {"strstr", "tt", 't'},
      {"strtok", "Tta", 't'},    {"substr", "tn?n", 't'},  {"index", "tt?n", 'n'},
      {"rindex", "tt?n", 'n'},   {"basename", "t", 't'},   {"dirname", "t", 't'},
      {"cleanpath", "t", 't'},   {"lltostr", "nn", 't'},   {"strtoll", "tn", 'n'},
      {"tolower", "t", 't'},     {"toupper", "t", 't'},    {"inet_ntoa", "a", 't'},
      {"inet_ntoa6", "an", 't'}, {"inet_ntop", "na", 't'}, {"link_ntop", "na", 't'},
      {"progenyof", "n", 'n'},   {"json", "tt", 't'},
  };
  return kAll[static_cast<std::size_t>(routine)];
}

std::string to_text(const Program& program) { return Printer(program).run(); }

}  // namespace trapline::plan
