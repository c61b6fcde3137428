// From the helper's JSON to the model. All of docs/protocol.md's objects.
//
// Errors: PROTOCOL, with the place that was not as it should be.

#pragma once

#include <memory>

#include "client/failure.h"
#include "client/json.h"
#include "client/model.h"

namespace trapline::client {

// The answer to `snapshot`.
Outcome<std::unique_ptr<trapline_snapshot>> decode_snapshot(const Json& result);

// The answer to `compile`, `start` or `stop`: members that one of them does not have are absent.
Outcome<std::unique_ptr<trapline_report>> decode_report(const Json& result);

// A notification; nullptr: of a kind that this version does not know, which is ignored.
Outcome<std::unique_ptr<RecordBatch>> decode_notification(std::string_view method,
                                                          const Json& parameters);

// An error: its code by kind, its text; a report with the diagnostics, if it has any.
struct RemoteError {
  Failure failure;
  std::unique_ptr<trapline_report> report;
};
Outcome<RemoteError> decode_error(const Json& error);

}  // namespace trapline::client
