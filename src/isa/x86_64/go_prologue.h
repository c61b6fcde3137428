// Go's functions: where one begins behind the check of its stack.
//
// Problem: goroutines run on small stacks. A function that the compiler does not call safe begins
// by comparing rsp with the goroutine's limit, and where that is reached calls the runtime, which
// moves the stack, and starts again at its first instruction. So a probe there would count twice,
// and might find next to no stack below it: chains of functions without the check go down to the
// last byte. Behind the check at least 880 bytes are free (StackGuard: 880 in Go 1.4, 928 from 1.17
// on), and what is there is executed once a call; the arguments are where they were.
//
// What the check looks like (amd64; g is the goroutine, its limit at offset 16):
//   cmp rsp, [r14+16]; jbe              arguments in registers (Go 1.17 on): g is r14
//   lea r12, [rsp-N]; cmp r12, [r14+16]; jbe
//   mov r12, rsp; sub r12, N; jb; cmp r12, [r14+16]; jbe
//   mov rcx, fs:[-8]; cmp rsp, [rcx+16]; jbe      arguments on the stack; g is read
//   mov rcx, fs:[-8]; lea rax, [rsp-N]; cmp rax, [rcx+16]; jbe
// Sources: cmd/internal/obj/x86 (stacksplit), runtime/stack.go, abi-internal.md of the Go project.

#pragma once

#include <cstdint>
#include <optional>

#include "isa/x86_64/control_flow.h"
#include "isa/x86_64/site.h"

namespace trapline::isa {

struct GoEntry {
  LinkAddr at;     // the first instruction behind the check
  PointKind kind;  // kGoEntry or kGoStackEntry
};

// nullopt: the function has no such check.
std::optional<GoEntry> go_entry(const FunctionCode& function);

}  // namespace trapline::isa
