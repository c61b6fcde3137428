// latefree: allocates 1000 blocks of 64 bytes, says ready, and frees them after the line.

#include "target.h"

int main(void) {
  static void* blocks[1000];
  die_with_parent();
  for (int i = 0; i < 1000; ++i) blocks[i] = malloc(64);
  put("ready\n");
  wait_for_line();
  for (int i = 0; i < 1000; ++i) free(blocks[i]);
  put_count("freed", 1000);
  return 0;
}
