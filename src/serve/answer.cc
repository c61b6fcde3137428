#include "serve/answer.h"

#include "report/json_text.h"

namespace trapline::serve {

namespace {

struct KindInfo {
  int code;
  std::string_view name;
};

KindInfo info_of(Kind kind) {
  switch (kind) {
    case Kind::kParse:
      return {-32700, "parse"};
    case Kind::kRequest:
      return {-32600, "request"};
    case Kind::kMethod:
      return {-32601, "method"};
    case Kind::kParameters:
      return {-32602, "parameters"};
    case Kind::kCompile:
      return {-32001, "compile"};
    case Kind::kState:
      return {-32002, "state"};
    case Kind::kPermission:
      return {-32003, "permission"};
    case Kind::kNotFound:
      return {-32004, "not_found"};
    case Kind::kGone:
      return {-32005, "gone"};
    case Kind::kUnsupported:
      return {-32006, "unsupported"};
    case Kind::kOs:
      return {-32007, "os"};
    case Kind::kInternal:
      break;
  }
  return {-32008, "internal"};
}

Kind kind_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kTargetGone:
      return Kind::kGone;
    case ErrorCode::kPermission:
      return Kind::kPermission;
    case ErrorCode::kBadInput:
      return Kind::kParameters;
    case ErrorCode::kUnsupported:
      return Kind::kUnsupported;
    case ErrorCode::kNotFound:
      return Kind::kNotFound;
    case ErrorCode::kOs:
    case ErrorCode::kTimeout:
      return Kind::kOs;
    case ErrorCode::kInternal:
      break;
  }
  return Kind::kInternal;
}

std::string one_line(std::string_view text) {
  std::string line(text);
  while (!line.empty() && line.back() == '\n') line.pop_back();
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  return line;
}

}  // namespace

Failure failure_of(const Error& error) { return {kind_of(error.code()), error.text(), {}}; }

std::string answer_line(std::string_view id, std::string_view result) {
  std::string line = R"({"jsonrpc":"2.0","id":)";
  line.reserve(line.size() + id.size() + result.size() + 16);
  line += id;
  line += R"(,"result":)";
  line += result;
  line += "}\n";
  return line;
}

std::string failure_line(std::string_view id, const Failure& failure) {
  const KindInfo info = info_of(failure.kind);
  std::string line = R"({"jsonrpc":"2.0","id":)";
  line += id;
  line += R"(,"error":{"code":)" + std::to_string(info.code);
  line += R"(,"message":)" + report::json_message(one_line(failure.message));
  line += R"(,"data":{"kind":")" + std::string(info.name) + '"';
  if (!failure.data.empty()) line += ',' + failure.data;
  line += "}}}\n";
  return line;
}

std::string notification_line(std::string_view method, std::string_view members) {
  std::string line = R"({"jsonrpc":"2.0","method":")";
  line.reserve(line.size() + method.size() + members.size() + 24);
  line += method;
  line += R"(","params":{)";
  line += members;
  line += "}}\n";
  return line;
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string list = "[";
  for (const std::string& text : texts) {
    if (list.size() > 1) list += ',';
    list += report::json_message(text);
  }
  return list + ']';
}

}  // namespace trapline::serve
