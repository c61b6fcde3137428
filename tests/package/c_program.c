/* The C interface as a C99 program with strict warnings sees it. Prints the calls that it made. */
#include <stdio.h>
#include <stdlib.h>
#include <trapline/trapline.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, trapline_error_text());
  return 1;
}

int main(void) {
  trapline_session* session = NULL;
  trapline_snapshot* snapshot = NULL;
  trapline_value calls;
  void* volatile block;
  int i;
  if (trapline_session_self(0, &session) != TRAPLINE_OK) return fail("self");
  if (trapline_session_compile(session, "pid$target::malloc:entry { @calls = count(); }", NULL) !=
      TRAPLINE_OK) {
    return fail("compile");
  }
  if (trapline_session_start(session, NULL) != TRAPLINE_OK) return fail("start");
  for (i = 0; i < 77; ++i) {
    block = malloc(100);
    free(block);
  }
  if (trapline_session_stop(session, NULL) != TRAPLINE_OK) return fail("stop");
  if (trapline_session_snapshot(session, 0, &snapshot) != TRAPLINE_OK) return fail("snapshot");
  if (trapline_entry_value(
          trapline_aggregation_entry(trapline_snapshot_find(snapshot, "calls", 5), 0), &calls) !=
      TRAPLINE_OK) {
    return fail("value");
  }
  printf("%ld\n", (long)calls.integer);
  trapline_snapshot_destroy(snapshot);
  trapline_session_destroy(session);
  return 0;
}
