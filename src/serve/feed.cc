#include "serve/feed.h"

#include <utility>

#include "report/json_text.h"
#include "report/text_output.h"
#include "serve/answer.h"

namespace trapline::serve {

namespace {

constexpr std::size_t kBatchSize = std::size_t{64} << 10;

}  // namespace

std::string drops_json(const consume::Drops& drops, std::uint64_t client) {
  return "{" + report::json_drops(drops) + ",\"client\":" + report::json_unsigned(client) + "}";
}

Feed::Feed(SessionId session, const plan::Program& program, report::PrintOptions options,
           Records records, Channel& channel)
    : session_("\"session\":" + std::to_string(session)),
      program_(program),
      options_(std::move(options)),
      records_(records),
      channel_(channel) {}

bool Feed::has_room(std::size_t more) const {
  return channel_.unread() + batch_.size() + more <= kMaxUnread;
}

void Feed::send(std::string_view method, const std::string& members) {
  send_batch();
  channel_.notify(notification_line(method, session_ + "," + members));
}

void Feed::send_batch() {
  if (batch_.empty()) return;
  channel_.notify(
      notification_line("records", session_ + ",\"records\":" + std::exchange(batch_, {}) + "]"));
}

void Feed::note(const std::string& text) {
  if (!has_room(text.size())) return lose();
  send("note", "\"text\":" + report::json_message(text));
}

void Feed::lose() {
  ++lost_;
  ++lost_untold_;
}

// The last word about a program: sent whether it is read or not.
void Feed::ended(const std::string& members) {
  tell_drops();
  send("ended", members);
}

// -------------------------------------------------------------------------------------------------
// records

Result<> Feed::begin_firing(const report::FiringInfo& firing) {
  recording_ = false;
  if (records_ == Records::kNone) return {};
  if (!has_room(0)) {
    lose();
    return {};
  }
  recording_ = true;
  record_ = "{\"probe\":" + report::json_probe(*firing.probe) +
            ",\"cpu\":" + std::to_string(firing.cpu) + ",\"tid\":" + std::to_string(firing.tid) +
            ",\"time\":" + report::json_unsigned(nanoseconds_(firing.tsc)) + ",\"actions\":";
  return {};
}

Result<> Feed::trace(const consume::Value& value) {
  if (recording_) actions_.trace(value);
  return {};
}

Result<> Feed::printf(const plan::Action& action, std::span<const consume::Value> fields) {
  if (recording_) actions_.printf(action, fields, options_);
  return {};
}

// It does not count as printed: snapshots hold all aggregations.
Result<> Feed::printa(const plan::Action& action, std::span<const consume::Value>,
                      consume::AggregationStore& store) {
  if (recording_) actions_.printa(program_, action, store, options_.sort);
  return {};
}

Result<> Feed::exit(std::int32_t status) {
  if (recording_) actions_.exit(status);
  return {};
}

Result<> Feed::end_firing() {
  if (!std::exchange(recording_, false)) return {};
  record_ += actions_.take() + "}";
  if (!has_room(record_.size())) {
    lose();
    return {};
  }
  batch_ += batch_.empty() ? '[' : ',';
  batch_ += record_;
  if (batch_.size() >= kBatchSize) send_batch();
  return {};
}

Result<> Feed::flush() {
  send_batch();
  if (lost_untold_ != 0 && has_room(kBatchSize)) tell_drops();
  return {};
}

// -------------------------------------------------------------------------------------------------
// faults and losses

Result<> Feed::fault(const report::FaultInfo& fault) {
  if (!has_room(0)) {
    lose();
    return {};
  }
  send("fault", "\"probe\":" + report::json_probe(*fault.firing.probe) +
                    ",\"fault\":" + std::to_string(static_cast<std::uint32_t>(fault.fault)) +
                    ",\"address\":" + report::json_unsigned(fault.address) +
                    ",\"message\":" + report::json_message(report::fault_message(fault)));
  return {};
}

Result<> Feed::failed(const report::FiringInfo& firing, const std::string& text) {
  note(firing.probe->function + ":" + firing.probe->name + ": " + text);
  return {};
}

Result<> Feed::drops(const consume::Drops& new_drops) {
  total_ += new_drops;
  untold_ += new_drops;
  if (has_room(0)) tell_drops();
  return {};
}

void Feed::tell_drops() {
  if (!untold_.any() && lost_untold_ == 0) return;
  send("drops",
       "\"drops\":" + drops_json(std::exchange(untold_, {}), std::exchange(lost_untold_, 0)));
}

}  // namespace trapline::serve
