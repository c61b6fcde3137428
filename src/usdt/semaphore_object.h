// `trapline -G`: the object file that is linked into a program with probes.
//
// It defines the semaphores of all declared probes, weak and hidden as the header's own (header.h),
// so that it can be linked in, or left out, or linked in twice. A program that was built with
// another header (SystemTap's) has no other definition of them.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "plan/provider.h"

namespace trapline::usdt {

// A relocatable ELF64 file for x86-64.
std::vector<std::byte> semaphore_object(std::span<const plan::Provider> providers);

}  // namespace trapline::usdt
