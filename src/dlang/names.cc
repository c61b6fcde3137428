// See names.h. Sources: the DTrace manuals of Oracle, illumos and FreeBSD.

#include "dlang/names.h"

#include <fcntl.h>
#include <net/if_arp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "plan/registers.h"

namespace trapline::dlang {
namespace {

using enum FunctionKind;
using Id = FunctionId;

// Sorted by name.
constexpr FunctionInfo kFunctions[] = {
    {"alloca", kSubroutine, Id::kAlloca, "void *", "size_t"},
    {"avg", kAggregating, Id::kAvg, "void", "@"},
    {"basename", kSubroutine, Id::kBasename, "string", "const char *"},
    {"bcopy", kSubroutine, Id::kBcopy, "void", "void *, void *, size_t"},
    {"breakpoint", kAction, Id::kDestructive, "void", ""},
    {"chill", kAction, Id::kChill, "void", "int"},
    {"cleanpath", kSubroutine, Id::kCleanpath, "string", "const char *"},
    {"clear", kAction, Id::kClear, "void", "@"},
    {"commit", kAction, Id::kCommit, "void", "int"},
    {"copyin", kSubroutine, Id::kCopyin, "void *", "uintptr_t, size_t"},
    {"copyinstr", kSubroutine, Id::kCopyinstr, "string", "uintptr_t, [size_t]"},
    {"copyinto", kSubroutine, Id::kCopyinto, "void", "uintptr_t, size_t, void *"},
    {"copyout", kSubroutine, Id::kCopyout, "void", "void *, uintptr_t, size_t"},
    {"copyoutstr", kSubroutine, Id::kCopyoutstr, "void", "char *, uintptr_t, size_t"},
    {"count", kAggregating, Id::kCount, "void", ""},
    {"d_path", kSubroutine, Id::kOther, "string", "struct path *"},
    {"ddi_pathname", kSubroutine, Id::kOther, "string", "void *, int64_t"},
    {"denormalize", kAction, Id::kDenormalize, "void", "@"},
    {"dirname", kSubroutine, Id::kDirname, "string", "const char *"},
    {"discard", kAction, Id::kDiscard, "void", "int"},
    {"exit", kAction, Id::kExit, "void", "int"},
    {"freopen", kAction, Id::kFreopen, "void", "@, ..."},
    {"ftruncate", kAction, Id::kFtruncate, "void", ""},
    {"func", kAction, Id::kOther, "_symaddr", "uintptr_t"},
    {"getmajor", kSubroutine, Id::kGetmajor, "dev_t", "dev_t"},
    {"getminor", kSubroutine, Id::kGetminor, "dev_t", "dev_t"},
    {"htonl", kSubroutine, Id::kSwap32, "uint32_t", "uint32_t"},
    {"htonll", kSubroutine, Id::kSwap64, "uint64_t", "uint64_t"},
    {"htons", kSubroutine, Id::kSwap16, "uint16_t", "uint16_t"},
    {"index", kSubroutine, Id::kIndex, "int", "const char *, const char *, [int]"},
    {"inet_ntoa", kSubroutine, Id::kInetNtoa, "string", "uint32_t *"},
    {"inet_ntoa6", kSubroutine, Id::kInetNtoa6, "string", "struct in6_addr *, [int]"},
    {"inet_ntop", kSubroutine, Id::kInetNtop, "string", "int, void *"},
    {"json", kSubroutine, Id::kJson, "string", "const char *, const char *"},
    {"jstack", kAction, Id::kJstack, "stack", "[uint32_t], [uint32_t]"},
    {"link_ntop", kSubroutine, Id::kLinkNtop, "string", "int, void *"},
    {"llquantize", kAggregating, Id::kLlquantize, "void",
     "@, int32_t, int32_t, int32_t, int32_t, ..."},
    {"lltostr", kSubroutine, Id::kLltostr, "string", "int64_t, [int]"},
    {"lquantize", kAggregating, Id::kLquantize, "void", "@, int32_t, int32_t, ..."},
    {"max", kAggregating, Id::kMax, "void", "@"},
    {"min", kAggregating, Id::kMin, "void", "@"},
    {"mod", kAction, Id::kOther, "_symaddr", "uintptr_t"},
    {"msgdsize", kSubroutine, Id::kOther, "size_t", "mblk_t *"},
    {"msgsize", kSubroutine, Id::kOther, "size_t", "mblk_t *"},
    {"mutex_owned", kSubroutine, Id::kOther, "int", "struct mutex *"},
    {"mutex_owner", kSubroutine, Id::kOther, "struct task_struct *", "struct mutex *"},
    {"mutex_type_adaptive", kSubroutine, Id::kOther, "int", "struct mutex *"},
    {"mutex_type_spin", kSubroutine, Id::kOther, "int", "struct mutex *"},
    {"normalize", kAction, Id::kNormalize, "void", "@, uint64_t"},
    {"ntohl", kSubroutine, Id::kSwap32, "uint32_t", "uint32_t"},
    {"ntohll", kSubroutine, Id::kSwap64, "uint64_t", "uint64_t"},
    {"ntohs", kSubroutine, Id::kSwap16, "uint16_t", "uint16_t"},
    {"panic", kAction, Id::kDestructive, "void", ""},
    {"pcap", kAction, Id::kOther, "void", "void *, int"},
    {"print", kAction, Id::kPrint, "void", "void *"},
    {"printa", kAction, Id::kPrinta, "void", "@, ..."},
    {"printf", kAction, Id::kPrintf, "void", "string, ..."},
    {"progenyof", kSubroutine, Id::kProgenyof, "int", "pid_t"},
    {"quantize", kAggregating, Id::kQuantize, "void", "@, ..."},
    {"raise", kAction, Id::kRaise, "void", "int"},
    {"rand", kSubroutine, Id::kRand, "int", ""},
    {"rindex", kSubroutine, Id::kRindex, "int", "const char *, const char *, [int]"},
    {"rw_iswriter", kSubroutine, Id::kOther, "int", "rwlock_t *"},
    {"rw_read_held", kSubroutine, Id::kOther, "int", "rwlock_t *"},
    {"rw_write_held", kSubroutine, Id::kOther, "int", "rwlock_t *"},
    {"setopt", kAction, Id::kSetopt, "void", "const char *, [const char *]"},
    {"speculate", kAction, Id::kSpeculate, "void", "int"},
    {"speculation", kSubroutine, Id::kSpeculation, "int", ""},
    {"stack", kAction, Id::kStack, "stack", "[uint32_t]"},
    {"stddev", kAggregating, Id::kStddev, "void", "@"},
    {"stop", kAction, Id::kStop, "void", ""},
    {"strchr", kSubroutine, Id::kStrchr, "string", "const char *, char"},
    {"strjoin", kSubroutine, Id::kStrjoin, "string", "const char *, const char *"},
    {"strlen", kSubroutine, Id::kStrlen, "size_t", "const char *"},
    {"strrchr", kSubroutine, Id::kStrrchr, "string", "const char *, char"},
    {"strstr", kSubroutine, Id::kStrstr, "string", "const char *, const char *"},
    {"strtok", kSubroutine, Id::kStrtok, "string", "const char *, const char *"},
    {"strtoll", kSubroutine, Id::kStrtoll, "int64_t", "const char *, [int]"},
    {"substr", kSubroutine, Id::kSubstr, "string", "const char *, int, [int]"},
    {"sum", kAggregating, Id::kSum, "void", "@"},
    {"sym", kAction, Id::kOther, "_symaddr", "uintptr_t"},
    {"system", kAction, Id::kSystem, "void", "@, ..."},
    {"tolower", kSubroutine, Id::kToLower, "string", "const char *"},
    {"toupper", kSubroutine, Id::kToUpper, "string", "const char *"},
    {"trace", kAction, Id::kTrace, "void", "@"},
    {"tracemem", kAction, Id::kTracemem, "void", "@, size_t, [size_t]"},
    {"trunc", kAction, Id::kTrunc, "void", "@, [int64_t]"},
    {"uaddr", kAction, Id::kOther, "_symaddr", "uintptr_t"},
    {"ufunc", kAction, Id::kOther, "_symaddr", "uintptr_t"},
    {"umod", kAction, Id::kOther, "_symaddr", "uintptr_t"},
    {"ustack", kAction, Id::kUstack, "stack", "[uint32_t], [uint32_t]"},
    {"usym", kAction, Id::kOther, "_symaddr", "uintptr_t"},
};
static_assert(std::ranges::is_sorted(kFunctions, {}, &FunctionInfo::name));

constexpr BuiltinVariable argument(std::string_view name, int number) {
  return {name, "int64_t", number, {}};
}
constexpr BuiltinVariable offered(std::string_view name, std::string_view type,
                                  plan::Builtin builtin) {
  return {name, type, -1, builtin};
}
constexpr BuiltinVariable other(std::string_view name, std::string_view type) {
  return {name, type, -1, {}};
}

// Sorted by name. `cpu` comes from a D library in DTrace; those with underscores are for the
// prelude.
constexpr BuiltinVariable kBuiltins[] = {
    offered("__pgid", "pid_t", plan::Builtin::kProcessGroup),
    offered("__priority", "int", plan::Builtin::kPriority),
    argument("arg0", 0),
    argument("arg1", 1),
    argument("arg2", 2),
    argument("arg3", 3),
    argument("arg4", 4),
    argument("arg5", 5),
    argument("arg6", 6),
    argument("arg7", 7),
    argument("arg8", 8),
    argument("arg9", 9),
    other("caller", "uintptr_t"),
    offered("cpu", "int", plan::Builtin::kCpu),
    other("curcpu", "cpuinfo_t *"),
    other("curthread", "struct task_struct *"),
    offered("epid", "uint64_t", plan::Builtin::kEpid),
    offered("errno", "int", plan::Builtin::kErrno),
    offered("execname", "string", plan::Builtin::kExecname),
    offered("gid", "gid_t", plan::Builtin::kGid),
    offered("id", "uint_t", plan::Builtin::kProbeId),
    other("ipl", "uint_t"),
    offered("pid", "pid_t", plan::Builtin::kPid),
    offered("ppid", "pid_t", plan::Builtin::kPpid),
    offered("probefunc", "string", plan::Builtin::kProbeFunction),
    offered("probemod", "string", plan::Builtin::kProbeModule),
    offered("probename", "string", plan::Builtin::kProbeName),
    offered("probeprov", "string", plan::Builtin::kProbeProvider),
    other("stackdepth", "uint32_t"),
    offered("tid", "id_t", plan::Builtin::kTid),
    offered("timestamp", "uint64_t", plan::Builtin::kTimestamp),
    offered("ucaller", "uint64_t", plan::Builtin::kUserCaller),
    offered("uid", "uid_t", plan::Builtin::kUid),
    offered("ustackdepth", "uint32_t", plan::Builtin::kUserStackDepth),
    offered("vtimestamp", "uint64_t", plan::Builtin::kVirtualTimestamp),
    offered("walltimestamp", "int64_t", plan::Builtin::kWallTimestamp),
};
static_assert(std::ranges::is_sorted(kBuiltins, {}, &BuiltinVariable::name));

using plan::UserRegister;
constexpr std::int32_t number(UserRegister which) { return static_cast<std::int32_t>(which); }

#define TL_NAMED(name) {#name, name}
constexpr NamedConstant kConstants[] = {
    TL_NAMED(AF_INET),
    TL_NAMED(AF_INET6),
    TL_NAMED(ARPHRD_ETHER),
    TL_NAMED(ARPHRD_INFINIBAND),
    TL_NAMED(E2BIG),
    TL_NAMED(EACCES),
    TL_NAMED(EADDRINUSE),
    TL_NAMED(EADDRNOTAVAIL),
    TL_NAMED(EAFNOSUPPORT),
    TL_NAMED(EAGAIN),
    TL_NAMED(EALREADY),
    TL_NAMED(EBADF),
    TL_NAMED(EBADMSG),
    TL_NAMED(EBUSY),
    TL_NAMED(ECANCELED),
    TL_NAMED(ECHILD),
    TL_NAMED(ECONNABORTED),
    TL_NAMED(ECONNREFUSED),
    TL_NAMED(ECONNRESET),
    TL_NAMED(EDEADLK),
    TL_NAMED(EDESTADDRREQ),
    TL_NAMED(EDOM),
    TL_NAMED(EDQUOT),
    TL_NAMED(EEXIST),
    TL_NAMED(EFAULT),
    TL_NAMED(EFBIG),
    TL_NAMED(EHOSTDOWN),
    TL_NAMED(EHOSTUNREACH),
    TL_NAMED(EIDRM),
    TL_NAMED(EILSEQ),
    TL_NAMED(EINPROGRESS),
    TL_NAMED(EINTR),
    TL_NAMED(EINVAL),
    TL_NAMED(EIO),
    TL_NAMED(EISCONN),
    TL_NAMED(EISDIR),
    TL_NAMED(ELOOP),
    TL_NAMED(EMFILE),
    TL_NAMED(EMLINK),
    TL_NAMED(EMSGSIZE),
    TL_NAMED(ENAMETOOLONG),
    TL_NAMED(ENETDOWN),
    TL_NAMED(ENETRESET),
    TL_NAMED(ENETUNREACH),
    TL_NAMED(ENFILE),
    TL_NAMED(ENOBUFS),
    TL_NAMED(ENODEV),
    TL_NAMED(ENOENT),
    TL_NAMED(ENOEXEC),
    TL_NAMED(ENOLCK),
    TL_NAMED(ENOLINK),
    TL_NAMED(ENOMEM),
    TL_NAMED(ENOMSG),
    TL_NAMED(ENOPROTOOPT),
    TL_NAMED(ENOSPC),
    TL_NAMED(ENOSYS),
    TL_NAMED(ENOTBLK),
    TL_NAMED(ENOTCONN),
    TL_NAMED(ENOTDIR),
    TL_NAMED(ENOTEMPTY),
    TL_NAMED(ENOTRECOVERABLE),
    TL_NAMED(ENOTSOCK),
    TL_NAMED(ENOTSUP),
    TL_NAMED(ENOTTY),
    TL_NAMED(ENXIO),
    TL_NAMED(EOPNOTSUPP),
    TL_NAMED(EOVERFLOW),
    TL_NAMED(EOWNERDEAD),
    TL_NAMED(EPERM),
    TL_NAMED(EPIPE),
    TL_NAMED(EPROTO),
    TL_NAMED(EPROTONOSUPPORT),
    TL_NAMED(EPROTOTYPE),
    TL_NAMED(ERANGE),
    TL_NAMED(EROFS),
    TL_NAMED(ESHUTDOWN),
    TL_NAMED(ESPIPE),
    TL_NAMED(ESRCH),
    TL_NAMED(ESTALE),
    TL_NAMED(ETIME),
    TL_NAMED(ETIMEDOUT),
    TL_NAMED(ETXTBSY),
    TL_NAMED(EUSERS),
    TL_NAMED(EWOULDBLOCK),
    TL_NAMED(EXDEV),
    TL_NAMED(O_APPEND),
    TL_NAMED(O_CREAT),
    TL_NAMED(O_EXCL),
    TL_NAMED(O_NOCTTY),
    TL_NAMED(O_NONBLOCK),
    TL_NAMED(O_RDONLY),
    TL_NAMED(O_RDWR),
    TL_NAMED(O_SYNC),
    TL_NAMED(O_TRUNC),
    TL_NAMED(O_WRONLY),
    TL_NAMED(SIGABRT),
    TL_NAMED(SIGALRM),
    TL_NAMED(SIGBUS),
    TL_NAMED(SIGCHLD),
    TL_NAMED(SIGCONT),
    TL_NAMED(SIGFPE),
    TL_NAMED(SIGHUP),
    TL_NAMED(SIGILL),
    TL_NAMED(SIGINT),
    TL_NAMED(SIGKILL),
    TL_NAMED(SIGPIPE),
    TL_NAMED(SIGPROF),
    TL_NAMED(SIGQUIT),
    TL_NAMED(SIGSEGV),
    TL_NAMED(SIGSTOP),
    TL_NAMED(SIGSYS),
    TL_NAMED(SIGTERM),
    TL_NAMED(SIGTRAP),
    TL_NAMED(SIGTSTP),
    TL_NAMED(SIGTTIN),
    TL_NAMED(SIGTTOU),
    TL_NAMED(SIGURG),
    TL_NAMED(SIGUSR1),
    TL_NAMED(SIGUSR2),
    TL_NAMED(SIGVTALRM),
    TL_NAMED(SIGWINCH),
    TL_NAMED(SIGXCPU),
    TL_NAMED(SIGXFSZ),
    {"R_R15", number(UserRegister::kR15)},
    {"R_R14", number(UserRegister::kR14)},
    {"R_R13", number(UserRegister::kR13)},
    {"R_R12", number(UserRegister::kR12)},
    {"R_R11", number(UserRegister::kR11)},
    {"R_R10", number(UserRegister::kR10)},
    {"R_R9", number(UserRegister::kR9)},
    {"R_R8", number(UserRegister::kR8)},
    {"R_RBP", number(UserRegister::kRbp)},
    {"R_RBX", number(UserRegister::kRbx)},
    {"R_RAX", number(UserRegister::kRax)},
    {"R_RCX", number(UserRegister::kRcx)},
    {"R_RDX", number(UserRegister::kRdx)},
    {"R_RSI", number(UserRegister::kRsi)},
    {"R_RDI", number(UserRegister::kRdi)},
    {"R_RIP", number(UserRegister::kRip)},
    {"R_RFL", number(UserRegister::kFlags)},
    {"R_RSP", number(UserRegister::kRsp)},
    {"R_EBP", number(UserRegister::kRbp)},
    {"R_EBX", number(UserRegister::kRbx)},
    {"R_EAX", number(UserRegister::kRax)},
    {"R_ECX", number(UserRegister::kRcx)},
    {"R_EDX", number(UserRegister::kRdx)},
    {"R_ESI", number(UserRegister::kRsi)},
    {"R_EDI", number(UserRegister::kRdi)},
    {"R_EIP", number(UserRegister::kRip)},
    {"R_EFL", number(UserRegister::kFlags)},
    {"R_ESP", number(UserRegister::kRsp)},
    {"R_CS", number(UserRegister::kCs)},
    {"R_SS", number(UserRegister::kSs)},
    {"R_DS", number(UserRegister::kDs)},
    {"R_ES", number(UserRegister::kEs)},
    {"R_FS", number(UserRegister::kFs)},
    {"R_GS", number(UserRegister::kGs)},
    {"R_TRAPNO", number(UserRegister::kTrap)},
    {"R_ERR", number(UserRegister::kError)},
    {"R_PC", number(UserRegister::kRip)},
    {"R_SP", number(UserRegister::kRsp)},
    {"R_FP", number(UserRegister::kRbp)},
    {"R_PS", number(UserRegister::kFlags)},
    {"R_R0", number(UserRegister::kRax)},
    {"R_R1", number(UserRegister::kRbx)},
    {"DTRACEFLT_UNKNOWN", 0},
    {"DTRACEFLT_BADADDR", 1},
    {"DTRACEFLT_BADALIGN", 2},
    {"DTRACEFLT_ILLOP", 3},
    {"DTRACEFLT_DIVZERO", 4},
    {"DTRACEFLT_NOSCRATCH", 5},
    {"DTRACEFLT_KPRIV", 6},
    {"DTRACEFLT_UPRIV", 7},
    {"DTRACEFLT_TUPOFLOW", 8},
    {"DTRACEFLT_BADSTACK", 9},
    {"DTRACEFLT_BADSIZE", 10},
    {"DTRACEFLT_BADINDEX", 11},
    {"DTRACEFLT_LIBRARY", 1000},
};
#undef TL_NAMED

template <typename Table>
auto find_in(const Table& table, std::string_view name) {
  const auto found =
      std::ranges::lower_bound(table, name, {}, [](const auto& entry) { return entry.name; });
  return found != std::end(table) && found->name == name ? &*found : nullptr;
}

}  // namespace

const FunctionInfo* find_function(std::string_view name) { return find_in(kFunctions, name); }
const BuiltinVariable* find_builtin(std::string_view name) { return find_in(kBuiltins, name); }

const NamedConstant* find_constant(std::string_view name) {
  const auto* found = std::ranges::find(kConstants, name, &NamedConstant::name);
  return found == std::end(kConstants) ? nullptr : found;
}

const BuiltinVariable& register_builtin() {
  static constexpr BuiltinVariable kRegister = other("uregs", "uint64_t");
  return kRegister;
}

std::span<const FunctionInfo> all_functions() { return kFunctions; }
std::span<const BuiltinVariable> all_builtins() { return kBuiltins; }

ctypes::TypeId parse_prototype_type(ctypes::TypeTable& table, std::string_view text) {
  if (text == "stack") return ctypes::kStack;
  if (text == "_symaddr") return ctypes::kSymbol;
  bool is_const = false;
  if (text.starts_with("const ")) {
    is_const = true;
    text.remove_prefix(6);
  }
  int stars = 0;
  while (text.ends_with('*') || text.ends_with(' ')) {
    if (text.back() == '*') ++stars;
    text.remove_suffix(1);
  }
  ctypes::TypeId type = ctypes::kVoid;
  if (const auto known = table.find(text)) {
    type = *known;
  } else {
    // A type that only a kernel has. As a tag it is like no other type, which is all that matters.
    if (text.starts_with("struct ")) text.remove_prefix(7);
    type = table.declare_tag(ctypes::TypeKind::kStruct, text);
  }
  if (is_const) type = table.qualified(type, ctypes::kConst);
  for (; stars != 0; --stars) type = table.pointer_to(type);
  return type;
}

}  // namespace trapline::dlang
