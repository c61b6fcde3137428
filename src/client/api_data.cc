// The C interface: errors, and accessors of snapshots, reports and records. Accessors call nothing,
// so that no session sees them, and so need not enter the library.

#include <trapline/trapline.h>

#include <array>
#include <cstddef>

#include "client/failure.h"
#include "client/inside.h"
#include "client/model.h"

using trapline::client::Inside;

namespace {

constexpr std::array<const char*, TRAPLINE_ERROR_INTERNAL + 1> kErrorNames{
    "OK",        "ARGUMENT",    "COMPILE",     "STATE", "PERMISSION", "YAMA",      "BUSY_TRACER",
    "NOT_FOUND", "TARGET_GONE", "UNSUPPORTED", "OS",    "MEMORY",     "NO_HELPER", "HELPER_GONE",
    "PROTOCOL",  "TIMEOUT",     "FORKED",      "TYPE",  "INTERNAL"};

// A loop that stays one: memcmp() may be probed.
bool equal(const char* a, const char* b, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (a[i] != b[i]) return false;
    asm volatile("");
  }
  return true;
}

bool equal(trapline_string a, trapline_string b) {
  return a.size == b.size && equal(a.data, b.data, a.size);
}

bool is_integer(const trapline_value& value) { return value.type <= TRAPLINE_VALUE_UINT; }

bool equal(const trapline_value& a, const trapline_value& b) {
  if (is_integer(a) != is_integer(b)) return false;
  if (!is_integer(a)) return equal(a.bytes, b.bytes);
  // Equal bits are different numbers where only one of the two is signed and the top bit is set.
  return a.integer == b.integer && (a.type == b.type || a.integer >= 0);
}

// An array and its size, for C.
template <typename T>
const T* array_of(std::span<const T> span, std::size_t* count) {
  *count = span.size();
  return span.data();
}

}  // namespace

const char* trapline_version(void) { return TRAPLINE_VERSION_TEXT; }

const char* trapline_error_name(trapline_error error) {
  const auto index = static_cast<std::size_t>(error);
  return index < kErrorNames.size() ? kErrorNames[index] : "UNKNOWN";
}

const char* trapline_error_text(void) {
  const Inside inside;
  return trapline::client::remembered_text();
}

void trapline_report_destroy(trapline_report* report) {
  const Inside inside;
  delete report;
}

uint64_t trapline_report_probes(const trapline_report* report) { return report->probes; }

const trapline_diagnostic* trapline_report_diagnostics(const trapline_report* report,
                                                       size_t* count) {
  return array_of(report->diagnostics, count);
}

const trapline_refusal* trapline_report_refusals(const trapline_report* report, size_t* count) {
  return array_of(report->refusals, count);
}

const trapline_string* trapline_report_notes(const trapline_report* report, size_t* count) {
  return array_of(report->notes, count);
}

void trapline_snapshot_destroy(trapline_snapshot* snapshot) {
  const Inside inside;
  delete snapshot;
}

trapline_string trapline_snapshot_text(const trapline_snapshot* snapshot) { return snapshot->text; }

trapline_state trapline_snapshot_state(const trapline_snapshot* snapshot) {
  return snapshot->state;
}

trapline_drops trapline_snapshot_drops(const trapline_snapshot* snapshot) {
  return snapshot->drops;
}

size_t trapline_snapshot_size(const trapline_snapshot* snapshot) {
  return snapshot->aggregations.size();
}

const trapline_aggregation* trapline_snapshot_aggregation(const trapline_snapshot* snapshot,
                                                          size_t index) {
  return index < snapshot->aggregations.size() ? &snapshot->aggregations[index] : nullptr;
}

const trapline_aggregation* trapline_snapshot_find(const trapline_snapshot* snapshot,
                                                   const char* name, size_t name_size) {
  for (const trapline_aggregation& aggregation : snapshot->aggregations) {
    if (equal(aggregation.name, trapline_string{name, name_size})) return &aggregation;
  }
  return nullptr;
}

trapline_string trapline_aggregation_name(const trapline_aggregation* aggregation) {
  return aggregation->name;
}

trapline_function trapline_aggregation_function(const trapline_aggregation* aggregation) {
  return aggregation->function;
}

uint64_t trapline_aggregation_normal(const trapline_aggregation* aggregation) {
  return aggregation->normal;
}

size_t trapline_aggregation_key_size(const trapline_aggregation* aggregation) {
  return aggregation->key_size;
}

size_t trapline_aggregation_size(const trapline_aggregation* aggregation) {
  return aggregation->entries.size();
}

const trapline_entry* trapline_aggregation_entry(const trapline_aggregation* aggregation,
                                                 size_t index) {
  return index < aggregation->entries.size() ? &aggregation->entries[index] : nullptr;
}

const trapline_entry* trapline_aggregation_find(const trapline_aggregation* aggregation,
                                                const trapline_value* key, size_t key_size) {
  if (key_size != aggregation->key_size) return nullptr;
  for (const trapline_entry& entry : aggregation->entries) {
    std::size_t same = 0;
    while (same < key_size && equal(entry.key[same], key[same])) ++same;
    if (same == key_size) return &entry;
  }
  return nullptr;
}

const trapline_value* trapline_entry_key(const trapline_entry* entry, size_t* size) {
  return array_of(entry->key, size);
}

trapline_error trapline_entry_value(const trapline_entry* entry, trapline_value* value) {
  if (entry->function <= TRAPLINE_FUNCTION_STDDEV) {
    *value = entry->value;
    return TRAPLINE_OK;
  }
  const Inside inside;
  return trapline::client::remember({TRAPLINE_ERROR_TYPE, "a histogram has no single value"});
}

trapline_error trapline_entry_statistics(const trapline_entry* entry,
                                         trapline_statistics* statistics) {
  if (entry->function == TRAPLINE_FUNCTION_AVG || entry->function == TRAPLINE_FUNCTION_STDDEV) {
    *statistics = entry->statistics;
    return TRAPLINE_OK;
  }
  const Inside inside;
  return trapline::client::remember(
      {TRAPLINE_ERROR_TYPE, "only avg() and stddev() keep statistics"});
}

const trapline_bucket* trapline_entry_buckets(const trapline_entry* entry, size_t* count) {
  return array_of(entry->buckets, count);
}

trapline_record_kind trapline_record_get_kind(const trapline_record* record) {
  return record->kind;
}

const trapline_probe* trapline_record_probe(const trapline_record* record) { return record->probe; }

uint64_t trapline_record_time(const trapline_record* record) { return record->time; }

int trapline_record_tid(const trapline_record* record) { return record->tid; }

int trapline_record_cpu(const trapline_record* record) { return record->cpu; }

const trapline_action* trapline_record_actions(const trapline_record* record, size_t* count) {
  return array_of(record->actions, count);
}

trapline_string trapline_record_text(const trapline_record* record) { return record->text; }

uint64_t trapline_record_fault(const trapline_record* record, int* fault) {
  if (fault != nullptr) *fault = record->fault;
  return record->address;
}

trapline_drops trapline_record_drops(const trapline_record* record) { return record->drops; }

trapline_end_reason trapline_record_end(const trapline_record* record, int* status) {
  if (status != nullptr) *status = record->status;
  return record->reason;
}
