// Statically defined probes in the form of SystemTap's sys/sdt.h, written out: a nop, and a note
// that is not loaded. `semaphore` is the name of a counter, or "0"; `arguments` the text of the
// note.

#pragma once

#define USDT_PROBE(name, semaphore, arguments, ...)                           \
  __asm__ volatile(                                                           \
      "990: nop\n"                                                            \
      ".pushsection .note.stapsdt,\"?\",\"note\"\n"                           \
      ".balign 4\n"                                                           \
      ".4byte 992f-991f, 994f-993f, 3\n"                                      \
      "991: .asciz \"stapsdt\"\n"                                             \
      "992: .balign 4\n"                                                      \
      "993: .8byte 990b, _.stapsdt.base, " semaphore                          \
      "\n"                                                                    \
      ".asciz \"usdt\"\n"                                                     \
      ".asciz \"" name                                                        \
      "\"\n"                                                                  \
      ".asciz \"" arguments                                                   \
      "\"\n"                                                                  \
      "994: .balign 4\n"                                                      \
      ".popsection\n"                                                         \
      ".ifndef _.stapsdt.base\n"                                              \
      ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
      ".weak _.stapsdt.base\n"                                                \
      ".hidden _.stapsdt.base\n"                                              \
      "_.stapsdt.base: .space 1\n"                                            \
      ".size _.stapsdt.base, 1\n"                                             \
      ".popsection\n"                                                         \
      ".endif\n" ::__VA_ARGS__)
