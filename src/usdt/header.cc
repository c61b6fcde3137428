#include "usdt/header.h"

#include <map>

namespace trapline::usdt {

namespace {

using plan::ProbeArgument;
using plan::ProbeArgumentKind;
using plan::Provider;
using plan::ProviderProbe;

// What all headers share, so guarded on its own.
//
// The asm keyword `inline` tells the compiler that the statement is one nop long, not forty lines:
// a function that has probes is inlined as before. "?" puts the note into the section group of the
// function that it is about: the copies of an inline function go together with their notes. The
// note is not loaded, so its addresses need no relocation at run time. .stapsdt.base tells tools
// how far a file was moved after it was linked.
constexpr std::string_view kShared = R"h(#ifndef TRAPLINE_USDT_ASM
#if defined(__clang__) ? __clang_major__ >= 11 : __GNUC__ >= 9
#define TRAPLINE_USDT_ASM __asm__ __volatile__ __inline__
#else
#define TRAPLINE_USDT_ASM __asm__ __volatile__
#endif
#define TRAPLINE_USDT_SEMAPHORE(symbol) \
  ".ifndef " symbol "\n" \
  ".pushsection .probes,\"awG\",@progbits," symbol ",comdat\n" \
  ".balign 2\n" \
  ".weak " symbol "\n" \
  ".hidden " symbol "\n" \
  ".type " symbol ",@object\n" \
  ".size " symbol ",2\n" \
  symbol ": .2byte 0\n" \
  ".popsection\n" \
  ".endif\n"
#define TRAPLINE_USDT_SITE(provider, name, semaphore, arguments) \
  "990: nop\n" \
  ".pushsection .note.stapsdt,\"?\",@note\n" \
  ".balign 4\n" \
  ".4byte 992f-991f,994f-993f,3\n" \
  "991: .asciz \"stapsdt\"\n" \
  "992: .balign 4\n" \
  "993: .8byte 990b,_.stapsdt.base," semaphore "\n" \
  ".asciz \"" provider "\"\n" \
  ".asciz \"" name "\"\n" \
  ".asciz \"" arguments "\"\n" \
  "994: .balign 4\n" \
  ".popsection\n" \
  ".ifndef _.stapsdt.base\n" \
  ".pushsection .stapsdt.base,\"aG\",@progbits,.stapsdt.base,comdat\n" \
  ".weak _.stapsdt.base\n" \
  ".hidden _.stapsdt.base\n" \
  "_.stapsdt.base: .space 1\n" \
  ".size _.stapsdt.base,1\n" \
  ".popsection\n" \
  ".endif\n"
#endif

)h";

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// "prov.h": _PROV_H
std::string guard_name(std::string_view file_name) {
  std::string name = "_";
  for (const char c : file_name) name += is_word(c) ? upper(c) : '_';
  return name;
}

// DTrace's: the provider's name in capitals, the probe's too, with one '_' for two.
std::string macro_name(const Provider& provider, const ProviderProbe& probe) {
  std::string name;
  for (const char c : provider.name) name += upper(c);
  name += '_';
  for (std::size_t i = 0; i < probe.name.size(); ++i) {
    name += upper(probe.name[i]);
    if (probe.name.compare(i, 2, "__") == 0) ++i;
  }
  return name;
}

std::string parameter(std::size_t i) { return "arg" + std::to_string(i); }
std::string local(std::size_t i) { return "trapline_arg" + std::to_string(i); }

std::string parameters(const ProviderProbe& probe) {
  std::string list;
  for (std::size_t i = 0; i < probe.arguments.size(); ++i)
    list += (i == 0 ? "" : ", ") + parameter(i);
  return list;
}

// A type of that size which every C and C++ has. Types of 64 bits are `long`: C89 has no other.
std::string integer_type(const ProbeArgument& argument) {
  const std::string sign = argument.is_signed ? "signed" : "unsigned";
  switch (argument.size) {
    case 1:
      return sign + " char";
    case 2:
      return sign + " short";
    case 4:
      return sign + " int";
    default:
      return sign + " long";
  }
}

// Copies an argument as a call of a function would, into what the asm statement takes.
std::string copy(const ProbeArgument& argument, std::size_t i) {
  const std::string name = local(i);
  const std::string value = "(" + parameter(i) + ")";
  const auto line = [](const std::string& text) { return "    " + text + "; \\\n"; };
  switch (argument.kind) {
    case ProbeArgumentKind::kBool:
      return line("unsigned char " + name + " = " + value + " ? 1 : 0");
    case ProbeArgumentKind::kString:
      return line("const char *" + name + " = " + value);
    case ProbeArgumentKind::kPointer:
      return line("const volatile void *" + name + " = " + value);
    case ProbeArgumentKind::kFunctionPointer:
      return line("unsigned long " + name + " = (unsigned long)" + value);
    case ProbeArgumentKind::kFloat: {
      const std::string type = argument.size == 4 ? "float " : "double ";
      return line(type + name + "_value = " + value) + line(integer_type(argument) + " " + name) +
             line("__builtin_memcpy(&" + name + ", &" + name + "_value, sizeof " + name + ")");
    }
    case ProbeArgumentKind::kInteger:
    case ProbeArgumentKind::kOther:
      break;
  }
  return line(integer_type(argument) + " " + name + " = " + value);
}

// "-4@%[a0] 8@%[a1]"
std::string note_arguments(const ProviderProbe& probe) {
  std::string text;
  for (std::size_t i = 0; i < probe.arguments.size(); ++i) {
    text += (i == 0 ? "" : " ") + std::string(probe.arguments[i].is_signed ? "-" : "") +
            std::to_string(probe.arguments[i].size) + "@%[a" + std::to_string(i) + "]";
  }
  return text;
}

// Any place will do for an operand: a constant, memory, a register.
std::string operands(const ProviderProbe& probe) {
  std::string text;
  for (std::size_t i = 0; i < probe.arguments.size(); ++i) {
    text += (i == 0 ? "" : ", ") + ("[a" + std::to_string(i) + "] \"nor\"(" + local(i) + ")");
  }
  return text;
}

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

std::string declaration(const Provider& provider, const ProviderProbe& probe) {
  return "extern volatile unsigned short " + semaphore_name(provider, probe) +
         "\n  __attribute__((__visibility__(\"hidden\")));\n";
}

std::string prototype(const Provider& provider, const ProviderProbe& probe) {
  std::string text = "/* " + provider.name + ":::" + probe.name + "(";
  for (std::size_t i = 0; i < probe.arguments.size(); ++i)
    text += (i == 0 ? "" : ", ") + probe.arguments[i].type;
  return text + ") */\n";
}

std::string macros(const Provider& provider, const ProviderProbe& probe) {
  const std::string name = macro_name(provider, probe);
  const std::string semaphore = semaphore_name(provider, probe);
  std::string text = prototype(provider, probe);
  text += "#define " + name + "(" + parameters(probe) + ") \\\n  __extension__({ \\\n";
  for (std::size_t i = 0; i < probe.arguments.size(); ++i) text += copy(probe.arguments[i], i);
  // What an argument points to has to be in memory by then.
  text += "    TRAPLINE_USDT_ASM(TRAPLINE_USDT_SEMAPHORE(" + quoted(semaphore) + ") \\\n" +
          "      TRAPLINE_USDT_SITE(" + quoted(provider.name) + ", " + quoted(probe.name) + ", " +
          quoted(semaphore) + ", \\\n        " + quoted(note_arguments(probe)) +
          ") \\\n      : : " + operands(probe) + " : \"memory\"); \\\n    (void)0; \\\n  })\n";
  text += "#define " + name + "_ENABLED() \\\n  __extension__({ \\\n" +
          "    TRAPLINE_USDT_ASM(TRAPLINE_USDT_SEMAPHORE(" + quoted(semaphore) + ")); \\\n" +
          "    __builtin_expect(" + semaphore + " != 0, 0); \\\n  })\n";
  return text;
}

// Elsewhere: side effects of the arguments stay, so that a program does the same everywhere.
std::string empty_macros(const Provider& provider, const ProviderProbe& probe) {
  const std::string name = macro_name(provider, probe);
  std::string text = "#define " + name + "(" + parameters(probe) + ") (";
  for (std::size_t i = 0; i < probe.arguments.size(); ++i) text += "(void)(" + parameter(i) + "), ";
  return text + "(void)0)\n#define " + name + "_ENABLED() (0)\n";
}

Result<> check(const Provider& provider, const ProviderProbe& probe) {
  const std::string full = provider.name + ":::" + probe.name;
  if (probe.arguments.size() > kMaxHeaderArguments) {
    return Error(ErrorCode::kUnsupported,
                 "probe " + full + " has " + std::to_string(probe.arguments.size()) +
                     " arguments; " + std::to_string(kMaxHeaderArguments) + " can be passed");
  }
  for (std::size_t i = 0; i < probe.arguments.size(); ++i) {
    const ProbeArgument& argument = probe.arguments[i];
    if (argument.kind != ProbeArgumentKind::kOther && argument.size >= 1 && argument.size <= 8)
      continue;
    return Error(ErrorCode::kUnsupported, "argument " + std::to_string(i + 1) + " of probe " +
                                              full + " is of type " + argument.type +
                                              ": only numbers and pointers can be passed");
  }
  return {};
}

template <typename Use>
std::string for_each(std::span<const Provider> providers, Use use) {
  std::string text;
  for (const Provider& provider : providers) {
    for (const ProviderProbe& probe : provider.probes) text += use(provider, probe);
  }
  return text;
}

Result<> check(std::span<const Provider> providers) {
  std::map<std::string, std::string> owners;  // of macros
  for (const Provider& provider : providers) {
    for (const ProviderProbe& probe : provider.probes) {
      TL_TRY(check(provider, probe));
      const std::string full = provider.name + ":::" + probe.name;
      const std::string name = macro_name(provider, probe);
      for (const std::string& macro : {name, name + "_ENABLED"}) {
        const auto [known, is_new] = owners.try_emplace(macro, full);
        if (!is_new) {
          return Error(ErrorCode::kBadInput, "probes " + known->second + " and " + full +
                                                 " would both be the macro " + macro);
        }
      }
    }
  }
  return {};
}

}  // namespace

std::string semaphore_name(const Provider& provider, const ProviderProbe& probe) {
  return provider.name + "_" + probe.name + "_semaphore";
}

Result<std::string> header_text(std::span<const Provider> providers, std::string_view file_name) {
  TL_TRY(check(providers));
  const std::string guard = guard_name(file_name);
  std::string text =
      "/*\n * Generated by trapline -h.\n */\n\n#ifndef " + guard + "\n#define " + guard + "\n\n";
  text +=
      "#if defined(__x86_64__) && defined(__LP64__) && defined(__ELF__) && "
      "defined(__GNUC__)\n\n";
  text += kShared;
  text += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
  text += for_each(providers, declaration);
  text += "#ifdef __cplusplus\n}\n#endif\n\n";
  text += for_each(providers, macros);
  text += "\n#else /* no probes on this architecture: the macros do nothing */\n\n";
  text += for_each(providers, empty_macros);
  text += "\n#endif\n\n#endif /* " + guard + " */\n";
  return text;
}

}  // namespace trapline::usdt
