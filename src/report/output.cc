#include "report/output.h"

#include "report/command.h"
#include "report/typed_value.h"

namespace trapline::report {

Result<> Output::tracemem(const consume::Value& bytes, std::size_t shown) {
  consume::Value cut = bytes;
  if (shown < cut.bytes.size()) {
    cut.bytes.resize(shown);
    cut.type.size = static_cast<std::uint32_t>(shown);
  }
  return trace(cut);
}

Result<> Output::print(const plan::Action& action, const consume::Value& address,
                       const consume::Value& bytes, const ctypes::TypeTable& types) {
  plan::FormatItem text;
  text.text = typed_value_text(types, action.type, address.integer, bytes.bytes);
  plan::Action printed;
  printed.kind = plan::ActionKind::kPrintf;
  printed.has_format = true;
  printed.format.push_back(std::move(text));
  return printf(printed, {});
}

Result<> Output::system(const std::string& command) {
  TL_TRY(flush());
  return run_command(command);
}

Result<> Output::freopen(const std::string&) {
  return Error(ErrorCode::kUnsupported, "this output goes to one place only");
}

}  // namespace trapline::report
