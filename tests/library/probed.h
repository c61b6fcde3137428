// Functions of the tests' own to be traced. They exist once in each program, are never inlined, and
// do something that no compiler can leave out.

#pragma once

#define PROBED extern "C" __attribute__((noinline, noipa, used))

// Something that is not optimised away and takes more bytes than a probe's jump.
inline void keep(int value) {
  volatile int kept[2];
  kept[0] = value;
  kept[1] = kept[0];
}
