// shortfns [--wait] [N]: calls each function of shortfns.S N times and checks every result, so that
// a damaged one is noticed. Prints the calls.

#include "target.h"

long s_ret(long), s_mov_ret(long), s_ret_again(long), s_xor_ret(long), s_lea_ret(long),
    s_push_pop(long), s_jump_short(long), s_branch_to_second(long), s_endbr_ret(long),
    s_endbr_mov_ret(long), s_nop5_ret(long), s_mov32_ret(long), s_outer(long), s_rep_ret(long),
    s_flags(long, long), s_last(long);

static void expect(int holds, const char* what) {
  if (holds) return;
  put("damaged: ");
  put(what);
  put("\n");
  _exit(4);
}

int main(int argc, char** argv) {
  start(&argc, &argv);
  const long n = number_argument(argc, argv, 1, 1000);
  for (long i = 1; i <= n; ++i) {
    s_ret(i);
    expect(s_mov_ret(i) == i, "s_mov_ret");
    s_ret_again(i);
    expect(s_xor_ret(i) == 0, "s_xor_ret");
    expect(s_push_pop(i) == i, "s_push_pop");
    expect(s_jump_short(i) == i + 1, "s_jump_short");
    expect(s_branch_to_second(i) == 0, "s_branch_to_second");
    s_endbr_ret(i);
    expect(s_endbr_mov_ret(i) == i, "s_endbr_mov_ret");
    s_nop5_ret(i);
    expect(s_mov32_ret(i) == 7, "s_mov32_ret");
    expect(s_outer(i) == i + 1, "s_outer");
    s_rep_ret(i);
    expect(s_flags(i, 5) == (i < 5), "s_flags");
    s_last(i);
  }
  static const char* const kNames[] = {
      "s_ret",       "s_mov_ret",       "s_ret_again",  "s_xor_ret",
      "s_lea_ret",   "s_push_pop",      "s_jump_short", "s_branch_to_second",
      "s_endbr_ret", "s_endbr_mov_ret", "s_nop5_ret",   "s_mov32_ret",
      "s_outer",     "s_inner",         "s_rep_ret",    "s_flags",
      "s_last"};
  // s_lea_ret is reached through s_jump_short; s_inner is fallen into from s_outer.
  for (size_t i = 0; i < sizeof kNames / sizeof kNames[0]; ++i) put_count(kNames[i], n);
  return 0;
}
