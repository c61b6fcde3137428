// What a session reports, as notifications.
//
// Records go out in batches. A client that does not read gets kMaxUnread bytes at most; what comes
// after that is counted as lost to it (DROPS.client) and told when there is room again.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "consume/record.h"
#include "report/json_values.h"
#include "report/output.h"
#include "serve/channel.h"
#include "serve/request.h"

namespace trapline::serve {

enum class Records : std::uint8_t { kNone, kPush };

// DROPS as JSON.
std::string drops_json(const consume::Drops& drops, std::uint64_t client);

class Feed final : public report::Output {
 public:
  // From a record's stamp to CLOCK_MONOTONIC.
  using Nanoseconds = std::function<std::uint64_t(std::uint64_t stamp)>;

  // `program` and `channel` outlive the feed.
  Feed(SessionId session, const plan::Program& program, report::PrintOptions options,
       Records records, Channel& channel);
  void set_clock(Nanoseconds nanoseconds) { nanoseconds_ = std::move(nanoseconds); }

  // DROPS so far.
  std::string drops_so_far() const { return drops_json(total_, lost_); }

  void note(const std::string& text);
  // Losses that were not told yet, whether it is read or not; before the last word of a run.
  void tell_drops();
  // `members`: reason, status and text.
  void ended(const std::string& members);

  Result<> begin_firing(const report::FiringInfo& firing) override;
  Result<> trace(const consume::Value& value) override;
  Result<> printf(const plan::Action& action, std::span<const consume::Value> fields) override;
  Result<> printa(const plan::Action& action, std::span<const consume::Value> fields,
                  consume::AggregationStore& store) override;
  Result<> exit(std::int32_t status) override;
  Result<> end_firing() override;
  Result<> fault(const report::FaultInfo& fault) override;
  Result<> failed(const report::FiringInfo& firing, const std::string& text) override;
  Result<> drops(const consume::Drops& new_drops) override;
  Result<> finish(consume::AggregationStore&) override { return {}; }
  Result<> flush() override;
  void set_options(const report::PrintOptions& options) override { options_ = options; }
  const report::PrintOptions& options() const override { return options_; }

 private:
  bool has_room(std::size_t more) const;
  void lose();  // counts what the client does not get
  void send_batch();
  void send(std::string_view method, const std::string& members);

  std::string session_;  // "\"session\":1"
  const plan::Program& program_;
  report::PrintOptions options_;
  Records records_;
  Channel& channel_;
  Nanoseconds nanoseconds_;
  bool recording_ = false;  // between begin_firing and end_firing, where the record will be sent
  std::string record_;
  report::JsonActions actions_;
  std::string batch_;
  consume::Drops total_;
  consume::Drops untold_;
  std::uint64_t lost_ = 0;  // to a client that did not read
  std::uint64_t lost_untold_ = 0;
};

}  // namespace trapline::serve
