// strings [--wait]: take_string of: "hello"; ""; 300 times 'x'; a text in UTF-8; one that ends with
// its page, the next page being unreadable; then take_bad of NULL, of 0x10 and of a page that
// cannot be read.

#include <sys/mman.h>

#include "target.h"

static volatile long sink;

PROBED void take_string(const char* text) { sink += (long)(size_t)text; }
PROBED void take_bad(const char* text) { sink += (long)(size_t)text; }

int main(int argc, char** argv) {
  char longer[301];
  start(&argc, &argv);
  memset(longer, 'x', 300);
  longer[300] = 0;
  char* pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages + 4096, 4096, PROT_NONE) != 0) return 3;
  strcpy(pages + 4096 - 5, "edge");
  take_string("hello");
  take_string("");
  take_string(longer);
  take_string("gr\xc3\xbc\xc3\x9f dich");
  take_string(pages + 4096 - 5);
  take_bad(NULL);
  take_bad((const char*)0x10);
  take_bad(pages + 4096);
  put_count("take_string", 5);
  put_count("take_bad", 3);
  return 0;
}
