// Feeds lines to the request parser: whatever comes is a call within its bounds, or a failure whose
// answer is one line.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serve/request.h"

namespace {

using namespace trapline;
using namespace trapline::serve;

void check(const Call& call) {
  if (const auto* open = std::get_if<Open>(&call.method)) {
    TL_CHECK(open->mute_offset <= 0 && open->mute_offset % 4 == 0);
    if (const auto* command = std::get_if<Command>(&open->target)) {
      for (const std::string& word : command->argv) TL_CHECK(word.find('\0') == std::string::npos);
    }
  }
  if (const auto* compile = std::get_if<Compile>(&call.method)) TL_CHECK(compile->session > 0);
  TL_CHECK(call.id.find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const auto call = read_call(line);
  if (call) {
    check(*call);
    return 0;
  }
  const std::string answer = failure_line(call.error().id, call.error().failure);
  TL_CHECK(answer.find('\n') == answer.size() - 1);
  return 0;
}
