#include "client/decode.h"

#include <array>

#include "client/decode_value.h"

namespace trapline::client {
namespace {

trapline_state decode_state(JsonReader& reader, const Json& json) {
  const std::string_view text = reader.text(json, "state");
  if (text == "compiled") return TRAPLINE_STATE_COMPILED;
  if (text == "running") return TRAPLINE_STATE_RUNNING;
  if (text == "stopped") return TRAPLINE_STATE_STOPPED;
  if (text == "ended") return TRAPLINE_STATE_ENDED;
  reader.fail("state", "is not known");
  return TRAPLINE_STATE_ENDED;
}

trapline_diagnostic decode_diagnostic(Decoder& decoder, const Json& json) {
  trapline_diagnostic out{};
  const std::string_view severity = decoder.text(decoder.member(json, "severity"), "severity");
  out.severity = severity == "warning" ? TRAPLINE_SEVERITY_WARNING : TRAPLINE_SEVERITY_ERROR;
  out.line = decoder.small_integer(decoder.member(json, "line"), "line");
  out.column = decoder.small_integer(decoder.member(json, "column"), "column");
  out.tag = decoder.copy(decoder.optional_text(json, "tag"));
  out.file = decoder.copy(decoder.optional_text(json, "file"));
  out.text = decoder.copy(decoder.text(decoder.member(json, "text"), "text"));
  out.hint = decoder.copy(decoder.optional_text(json, "hint"));
  return out;
}

trapline_refusal decode_refusal(Decoder& decoder, const Json& json) {
  trapline_refusal out{};
  out.probe = decoder.copy(decoder.text(decoder.member(json, "probe"), "probe"));
  out.address = decoder.unsigned_integer(decoder.member(json, "address"), "address");
  out.reason = decoder.copy(decoder.text(decoder.member(json, "reason"), "reason"));
  out.detail = decoder.copy(decoder.optional_text(json, "detail"));
  return out;
}

// One object of an array each; none where the array is absent.
template <typename T, typename Decode>
std::span<const T> decode_list(Decoder& decoder, const Json& object, const char* name,
                               Decode&& decode) {
  const Json& array = decoder.optional_member(object, name);
  if (array.is_null() || !decoder.is_array(array, name)) return {};
  const std::span<T> out = decoder.arena().make<T>(array.items().size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = decode(decoder, array.items()[i]);
  }
  return out;
}

trapline_probe decode_probe(Decoder& decoder, const Json& json) {
  trapline_probe out{};
  out.id = decoder.small_integer(decoder.member(json, "id"), "id");
  out.provider = decoder.copy(decoder.optional_text(json, "provider"));
  out.module = decoder.copy(decoder.optional_text(json, "module"));
  out.function = decoder.copy(decoder.optional_text(json, "function"));
  out.name = decoder.copy(decoder.optional_text(json, "name"));
  return out;
}

trapline_action decode_action(Decoder& decoder, const Json& json) {
  trapline_action out{};
  out.value.bytes = {"", 0};
  out.text = {"", 0};
  const Json& trace = decoder.optional_member(json, "trace");
  const Json& printf = decoder.optional_member(json, "printf");
  const Json& printa = decoder.optional_member(json, "printa");
  const Json& exit = decoder.optional_member(json, "exit");
  if (!trace.is_null()) {
    out.kind = TRAPLINE_ACTION_TRACE;
    out.value = decoder.value(trace, "trace");
  } else if (!printf.is_null()) {
    out.kind = TRAPLINE_ACTION_PRINTF;
    // Text with bytes that are no UTF-8 comes as hex.
    out.text = decoder.value(printf, "printf").bytes;
    const auto values = decode_list<trapline_value>(
        decoder, json, "values",
        [](Decoder& d, const Json& value) { return d.value(value, "values"); });
    out.values = values.data();
    out.value_count = values.size();
  } else if (!printa.is_null()) {
    out.kind = TRAPLINE_ACTION_PRINTA;
    const auto list = decoder.aggregations(printa, "printa");
    const auto pointers = decoder.arena().make<const trapline_aggregation*>(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) pointers[i] = &list[i];
    out.aggregations = pointers.data();
    out.aggregation_count = pointers.size();
  } else if (!exit.is_null()) {
    out.kind = TRAPLINE_ACTION_EXIT;
    out.value = decoder.value(exit, "exit");
  } else {
    decoder.fail("an action", "is of a kind that is not known");
  }
  return out;
}

trapline_record blank_record(trapline_record_kind kind) {
  trapline_record record{};
  record.kind = kind;
  record.text = {"", 0};
  return record;
}

const trapline_probe* keep_probe(Decoder& decoder, const Json& object) {
  trapline_probe& kept = decoder.arena().make<trapline_probe>(1).front();
  kept = decode_probe(decoder, decoder.member(object, "probe"));
  return &kept;
}

trapline_record decode_firing(Decoder& decoder, const Json& json) {
  trapline_record record = blank_record(TRAPLINE_RECORD_FIRING);
  record.probe = keep_probe(decoder, json);
  record.cpu = static_cast<int>(decoder.small_integer(decoder.member(json, "cpu"), "cpu"));
  record.tid = static_cast<int>(decoder.small_integer(decoder.member(json, "tid"), "tid"));
  record.time = decoder.unsigned_integer(decoder.member(json, "time"), "time");
  record.actions = decode_list<trapline_action>(decoder, json, "actions", decode_action);
  return record;
}

trapline_record decode_fault(Decoder& decoder, const Json& json) {
  trapline_record record = blank_record(TRAPLINE_RECORD_FAULT);
  record.probe = keep_probe(decoder, json);
  record.fault = static_cast<int>(decoder.small_integer(decoder.member(json, "fault"), "fault"));
  record.address = decoder.unsigned_integer(decoder.member(json, "address"), "address");
  record.text = decoder.copy(decoder.text(decoder.member(json, "message"), "message"));
  return record;
}

trapline_record decode_ended(Decoder& decoder, const Json& json) {
  trapline_record record = blank_record(TRAPLINE_RECORD_ENDED);
  const std::string_view reason = decoder.text(decoder.member(json, "reason"), "reason");
  record.reason = reason == "exit"     ? TRAPLINE_END_EXIT
                  : reason == "target" ? TRAPLINE_END_TARGET
                                       : TRAPLINE_END_ERROR;
  const Json& status = decoder.optional_member(json, "status");
  if (!status.is_null()) record.status = static_cast<int>(decoder.signed_integer(status, "status"));
  record.text = decoder.copy(decoder.optional_text(json, "text"));
  return record;
}

// "permission" has sub-kinds in the member "rule", for programs that want to tell them apart.
trapline_error error_code(std::string_view kind, std::string_view rule) {
  struct Named {
    std::string_view kind;
    trapline_error code;
  };
  static constexpr std::array<Named, 9> kKinds{{
      {"compile", TRAPLINE_ERROR_COMPILE},
      {"state", TRAPLINE_ERROR_STATE},
      {"permission", TRAPLINE_ERROR_PERMISSION},
      {"not_found", TRAPLINE_ERROR_NOT_FOUND},
      {"gone", TRAPLINE_ERROR_TARGET_GONE},
      {"unsupported", TRAPLINE_ERROR_UNSUPPORTED},
      {"os", TRAPLINE_ERROR_OS},
      {"internal", TRAPLINE_ERROR_INTERNAL},
      {"parameters", TRAPLINE_ERROR_ARGUMENT},
  }};
  if (kind == "permission" && rule == "yama") return TRAPLINE_ERROR_YAMA;
  if (kind == "permission" && rule == "tracer") return TRAPLINE_ERROR_BUSY_TRACER;
  for (const Named& named : kKinds) {
    if (named.kind == kind) return named.code;
  }
  // Of JSON-RPC itself (a request that was not understood), or of a later version.
  return TRAPLINE_ERROR_PROTOCOL;
}

}  // namespace

Outcome<std::unique_ptr<trapline_snapshot>> decode_snapshot(const Json& result) {
  auto snapshot = std::make_unique<trapline_snapshot>();
  Decoder decoder(snapshot->arena);
  snapshot->aggregations =
      decoder.aggregations(decoder.member(result, "aggregations"), "aggregations");
  snapshot->drops = decoder.drops(decoder.member(result, "drops"));
  snapshot->state = decode_state(decoder, decoder.member(result, "state"));
  const Json& text = decoder.optional_member(result, "text");
  if (!text.is_null()) snapshot->text = decoder.value(text, "text").bytes;
  TC_TRY(decoder.result());
  return snapshot;
}

Outcome<std::unique_ptr<trapline_report>> decode_report(const Json& result) {
  auto report = std::make_unique<trapline_report>();
  Decoder decoder(report->arena);
  decoder.is_object(result, "the result");
  for (const char* name : {"matched", "armed"}) {
    const Json& count = decoder.optional_member(result, name);
    if (!count.is_null()) report->probes = decoder.unsigned_integer(count, name);
  }
  report->diagnostics =
      decode_list<trapline_diagnostic>(decoder, result, "diagnostics", decode_diagnostic);
  report->refusals = decode_list<trapline_refusal>(decoder, result, "refused", decode_refusal);
  report->notes = decode_list<trapline_string>(
      decoder, result, "notes",
      [](Decoder& d, const Json& note) { return d.copy(d.text(note, "notes")); });
  TC_TRY(decoder.result());
  return report;
}

Outcome<std::unique_ptr<RecordBatch>> decode_notification(std::string_view method,
                                                          const Json& parameters) {
  auto batch = std::make_unique<RecordBatch>();
  Decoder decoder(batch->arena);
  const auto single = [&](trapline_record record) {
    const std::span<trapline_record> one = batch->arena.make<trapline_record>(1);
    one[0] = record;
    batch->records = one;
  };
  if (method == "records") {
    decoder.member(parameters, "records");
    batch->records = decode_list<trapline_record>(decoder, parameters, "records", decode_firing);
  } else if (method == "fault") {
    single(decode_fault(decoder, parameters));
  } else if (method == "drops") {
    trapline_record record = blank_record(TRAPLINE_RECORD_DROPS);
    record.drops = decoder.drops(decoder.member(parameters, "drops"));
    single(record);
  } else if (method == "note") {
    trapline_record record = blank_record(TRAPLINE_RECORD_NOTE);
    record.text = decoder.copy(decoder.text(decoder.member(parameters, "text"), "text"));
    single(record);
  } else if (method == "ended") {
    single(decode_ended(decoder, parameters));
    batch->ended = true;
  } else {
    return nullptr;
  }
  TC_TRY(decoder.result());
  return batch;
}

Outcome<RemoteError> decode_error(const Json& error) {
  RemoteError out;
  JsonReader reader;
  const std::string_view message = reader.text(reader.member(error, "message"), "message");
  const Json& data = reader.optional_member(error, "data");
  out.failure.code =
      error_code(reader.optional_text(data, "kind"), reader.optional_text(data, "rule"));
  out.failure.text = std::string(message);
  TC_TRY(reader.result());
  if (out.failure.code == TRAPLINE_ERROR_COMPILE) {
    Outcome<std::unique_ptr<trapline_report>> report = decode_report(data);
    if (!report) return Failure(std::move(report).error());
    out.report = std::move(*report);
  }
  return out;
}

}  // namespace trapline::client
