/* The C interface as strict C99. Prints what is wrong; 0: nothing. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trapline/trapline.h>

static int problems = 0;

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      printf("%d: %s does not hold: %s\n", __LINE__, #condition, trapline_error_text()); \
      ++problems;                                                                        \
    }                                                                                    \
  } while (0)

int probed_c(int number);
__attribute__((noinline, used)) int probed_c(int number) {
  static volatile int kept;
  kept = number;
  return kept * 2;
}

static void on_record(const trapline_record* record, void* user) {
  size_t count = 0;
  const trapline_action* actions = trapline_record_actions(record, &count);
  if (trapline_record_get_kind(record) != TRAPLINE_RECORD_FIRING) return;
  CHECK(count == 1);
  CHECK(actions[0].kind == TRAPLINE_ACTION_PRINTF);
  CHECK(strcmp(actions[0].text.data, "argument 21") == 0);
  CHECK(strcmp(trapline_record_probe(record)->function.data, "probed_c") == 0);
  ++*(int*)user;
}

static void read_snapshot(const trapline_snapshot* snapshot) {
  const trapline_aggregation* by = trapline_snapshot_find(snapshot, "by", 2);
  const trapline_entry* entry;
  trapline_value key;
  trapline_value value;
  size_t size = 0;
  CHECK(by != NULL);
  if (by == NULL) return;
  CHECK(trapline_aggregation_function(by) == TRAPLINE_FUNCTION_SUM);
  CHECK(trapline_aggregation_size(by) == 1);
  CHECK(trapline_aggregation_entry(by, 1) == NULL);
  memset(&key, 0, sizeof key);
  key.type = TRAPLINE_VALUE_STRING;
  key.bytes.data = "probed_c";
  key.bytes.size = strlen("probed_c");
  entry = trapline_aggregation_find(by, &key, 1);
  CHECK(entry != NULL);
  if (entry == NULL) return;
  CHECK(trapline_entry_value(entry, &value) == TRAPLINE_OK);
  CHECK(value.integer == 21);
  CHECK(trapline_entry_key(entry, &size)[0].bytes.size == strlen("probed_c"));
  CHECK(size == 1);
  CHECK(strstr(trapline_snapshot_text(snapshot).data, "probed_c") != NULL);
}

int main(void) {
  trapline_session* session = NULL;
  trapline_report* report = NULL;
  trapline_snapshot* snapshot = NULL;
  trapline_program program = TRAPLINE_PROGRAM_INIT;
  trapline_option options[1];
  size_t count = 0;
  int records = 0;

  CHECK(strcmp(trapline_version(), "0.1.0") == 0);
  CHECK(trapline_session_self(TRAPLINE_RECORDS, &session) == TRAPLINE_OK);
  if (session == NULL) return 1;

  CHECK(trapline_session_compile(session, "nonsense", &report) == TRAPLINE_ERROR_COMPILE);
  CHECK(report != NULL && trapline_report_diagnostics(report, &count) != NULL && count > 0);
  trapline_report_destroy(report);

  options[0].name = "bufsize";
  options[0].value = "1m";
  program.text =
      "pid$target:a.out:probed_c:entry"
      "{ @by[probefunc] = sum(arg0); printf(\"argument %d\", arg0); }";
  program.text_size = strlen(program.text);
  program.options = options;
  program.option_count = 1;
  CHECK(trapline_session_compile_program(session, &program, &report) == TRAPLINE_OK);
  CHECK(trapline_report_probes(report) == 1);
  trapline_report_destroy(report);
  CHECK(trapline_session_start(session, NULL) == TRAPLINE_OK);
  CHECK(probed_c(21) == 42);
  CHECK(trapline_session_stop(session, NULL) == TRAPLINE_OK);
  CHECK(trapline_session_dispatch(session, on_record, &records) == TRAPLINE_OK);
  CHECK(records == 1);
  CHECK(trapline_session_snapshot(session, TRAPLINE_SNAPSHOT_TEXT, &snapshot) == TRAPLINE_OK);
  trapline_session_destroy(session);
  if (snapshot != NULL) read_snapshot(snapshot);
  trapline_snapshot_destroy(snapshot);
  return problems != 0;
}
