// `trapline -h`: the header with which a C or C++ program fires the probes of its providers.
//
// For each probe there is a macro that fires it and one that asks whether somebody listens:
//   provider myapp { probe request__start(int, char *); };
//   MYAPP_REQUEST_START(id, path)      MYAPP_REQUEST_START_ENABLED()
// A site is a nop and a note in section .note.stapsdt that says where the nop is, where the
// arguments lie there and which counter (the semaphore) a tracer raises meanwhile: the form that
// all tracers on Linux know (SystemTap's sys/sdt.h version 3), so nothing else is needed. Each
// object defines the semaphores that it uses, weak and in a COMDAT group, so that the linker
// leaves one of them, whatever is linked with what.
//
// Limits: x86-64, gcc and clang; elsewhere the macros evaluate their arguments and do nothing.
// Source: SystemTap, "UserSpaceProbeImplementation".

#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/provider.h"

namespace trapline::usdt {

inline constexpr std::size_t kMaxHeaderArguments = 10;  // arg0 to arg9

// `file_name` names the guard against double inclusion: "prov.h", _PROV_H. Errors: kBadInput (two
// probes would be one macro), kUnsupported (a structure as an argument, more than ten).
Result<std::string> header_text(std::span<const plan::Provider> providers,
                                std::string_view file_name);

// The symbol of a probe's semaphore: myapp_request__start_semaphore.
std::string semaphore_name(const plan::Provider& provider, const plan::ProviderProbe& probe);

}  // namespace trapline::usdt
