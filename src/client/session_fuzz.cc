// Random sequences of calls of the C interface against a helper that says anything.
//
// The input is a list of commands. Before each call the helper's words lie ready in the socket:
// well-formed answers, answers with pieces of the input in them, or the input itself; so a call
// either finds its answer or runs into its timeout of 0 at once, and no second thread is needed.
// Everything that a call hands out is read to the last byte, as a program would.

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "base/cursor.h"
#include "client/handle.h"
#include "client/session.h"

namespace {

using namespace trapline::client;
using trapline::Cursor;
using trapline::Fd;

volatile std::uint64_t sink = 0;

void read(trapline_string text) {
  for (std::size_t i = 0; i < text.size; ++i)
    sink = sink + static_cast<unsigned char>(text.data[i]);
  TL_CHECK(text.data[text.size] == '\0');
}
void read(const trapline_value& value) {
  sink = sink + static_cast<std::uint64_t>(value.integer);
  read(value.bytes);
}

void read(const trapline_aggregation* aggregation) {
  read(trapline_aggregation_name(aggregation));
  for (std::size_t i = 0; i < trapline_aggregation_size(aggregation); ++i) {
    const trapline_entry* entry = trapline_aggregation_entry(aggregation, i);
    std::size_t size = 0;
    const trapline_value* key = trapline_entry_key(entry, &size);
    TL_CHECK(size == trapline_aggregation_key_size(aggregation));
    for (std::size_t c = 0; c < size; ++c) read(key[c]);
    TL_CHECK(trapline_aggregation_find(aggregation, key, size) != nullptr);
    trapline_value value{};
    trapline_statistics statistics{};
    if (trapline_entry_value(entry, &value) == TRAPLINE_OK) read(value);
    if (trapline_entry_statistics(entry, &statistics) == TRAPLINE_OK)
      sink = sink + statistics.count;
    const trapline_bucket* buckets = trapline_entry_buckets(entry, &size);
    for (std::size_t b = 0; b < size; ++b) sink = sink + static_cast<std::uint64_t>(buckets[b].low);
  }
}

void read(trapline_snapshot* snapshot) {
  read(trapline_snapshot_text(snapshot));
  for (std::size_t i = 0; i < trapline_snapshot_size(snapshot); ++i) {
    const trapline_aggregation* aggregation = trapline_snapshot_aggregation(snapshot, i);
    read(aggregation);
    const trapline_string name = trapline_aggregation_name(aggregation);
    TL_CHECK(trapline_snapshot_find(snapshot, name.data, name.size) != nullptr);
  }
  trapline_snapshot_destroy(snapshot);
}

void read(trapline_report* report) {
  std::size_t count = 0;
  const trapline_diagnostic* diagnostics = trapline_report_diagnostics(report, &count);
  for (std::size_t i = 0; i < count; ++i) {
    for (const auto& text :
         {diagnostics[i].tag, diagnostics[i].file, diagnostics[i].text, diagnostics[i].hint})
      read(text);
  }
  const trapline_refusal* refusals = trapline_report_refusals(report, &count);
  for (std::size_t i = 0; i < count; ++i) {
    for (const auto& text : {refusals[i].probe, refusals[i].reason, refusals[i].detail}) read(text);
  }
  const trapline_string* notes = trapline_report_notes(report, &count);
  for (std::size_t i = 0; i < count; ++i) read(notes[i]);
  trapline_report_destroy(report);
}

void read_record(const trapline_record* record, void*) {
  TL_CHECK(!Inside::active());
  read(trapline_record_text(record));
  if (const trapline_probe* probe = trapline_record_probe(record)) {
    for (const auto& text : {probe->provider, probe->module, probe->function, probe->name})
      read(text);
  }
  std::size_t count = 0;
  const trapline_action* actions = trapline_record_actions(record, &count);
  for (std::size_t i = 0; i < count; ++i) {
    read(actions[i].value);
    read(actions[i].text);
    for (std::size_t v = 0; v < actions[i].value_count; ++v) read(actions[i].values[v]);
    for (std::size_t a = 0; a < actions[i].aggregation_count; ++a) read(actions[i].aggregations[a]);
  }
  sink = sink + trapline_record_drops(record).client;
}

constexpr std::array<const char*, 12> kResults{
    R"({"matched":1,"diagnostics":[{"severity":"warning","line":1,"column":2,"text":"@"}],"notes":["@"]})",
    R"({"armed":1,"refused":[{"probe":"@","address":5,"reason":"@"}],"notes":[]})",
    R"({"notes":["@"]})",
    R"({"aggregations":[{"name":"@","function":"count","normal":1,"types":["int","string"],"entries":[{"key":[@,"@"],"value":@}]}],"drops":{"record":0,"aggregation":0,"dynamic":0,"speculation":0,"speculative":0,"level":0,"no_slot":0,"samples":0,"malformed":0,"client":0},"state":"running","text":"@"})",
    R"({"aggregations":[{"name":"q","function":"quantize","normal":1,"types":[],"entries":[{"key":[],"value":[{"low":@,"high":null,"count":@}]}]}],"drops":{"record":0,"aggregation":0,"dynamic":0,"speculation":0,"speculative":0,"level":0,"no_slot":0,"samples":0,"malformed":0,"client":0},"state":"stopped"})",
    R"({"aggregations":[{"name":"s","function":"stddev","normal":@,"types":["uint","bytes"],"entries":[{"key":[@,{"hex":"00ff"}],"value":{"count":@,"sum":@,"squares":{"integer":"@"}}}]}],"drops":{"record":0,"aggregation":0,"dynamic":0,"speculation":0,"speculative":0,"level":0,"no_slot":0,"samples":0,"malformed":0,"client":0},"state":"ended"})",
    R"({"session":1,"pid":@})",
    R"({"protocol":@})",
    "{}",
    "@",
    R"({"aggregations":[@],"drops":{},"state":"running"})",
    R"({"aggregations":@})",
};

constexpr std::array<const char*, 8> kNotifications{
    R"({"method":"records","params":{"records":[{"probe":{"id":1,"function":"@"},"cpu":0,"tid":1,"time":@,"actions":[{"printf":"@","values":[@,"@",{"hex":"00"}]},{"trace":@},{"exit":@}]}]}})",
    R"({"method":"records","params":{"records":[{"probe":{"id":@},"cpu":0,"tid":1,"time":1,"actions":[{"printa":[{"name":"@","function":"max","normal":1,"types":[],"entries":[{"key":[],"value":@}]}]}]}]}})",
    R"({"method":"fault","params":{"probe":{"id":1},"fault":1,"address":@,"message":"@"}})",
    R"({"method":"drops","params":{"drops":{"record":@,"aggregation":0,"dynamic":0,"speculation":0,"speculative":0,"level":0,"no_slot":0,"samples":0,"malformed":0,"client":0}}})",
    R"({"method":"note","params":{"text":"@"}})",
    R"({"method":"ended","params":{"reason":"exit","status":@,"text":"@"}})",
    R"({"method":"@","params":@})",
    R"({"id":null,"error":{"code":-32700,"message":"@"}})",
};

// Plays both the program and the helper.
class Game {
 public:
  explicit Game(Cursor input) : input_(input) {}

  void play() {
    open();
    for (int calls = 0; input_.remaining() > 0 && calls < 64; ++calls) {
      say();
      call();
      TL_CHECK(!Inside::active());
    }
    trapline_session_destroy(session_);
  }

 private:
  std::uint8_t byte() {
    return input_.remaining() > 0 ? input_.read<std::uint8_t>() : std::uint8_t{0};
  }
  std::string piece() {
    const auto bytes = input_.read_bytes(std::min<std::size_t>(byte() % 24u, input_.remaining()));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string filled(const char* from) {
    std::string text;
    for (; *from != '\0'; ++from) {
      if (*from == '@') {
        text += byte() % 2 != 0 ? std::to_string(byte()) : piece();
      } else {
        text += *from;
      }
    }
    return text;
  }
  void send(const std::string& line) {
    static_cast<void>(::send(peer_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  // Lays an answer to the next request ready, and perhaps something before it.
  void say() {
    ++request_;
    const std::uint8_t choice = byte();
    if (choice % 4 == 1) send(filled(kNotifications[byte() % kNotifications.size()]) + '\n');
    const std::string id = R"({"id":)" + std::to_string(request_);
    if (choice % 16 == 15) {
      send(piece());
    } else if (choice % 16 == 14) {
      peer_.reset();
    } else if (choice % 16 == 13) {
      send(
          id +
          R"(,"error":{"code":-32001,"message":"m","data":{"kind":"compile","diagnostics":[{"severity":"error","line":1,"column":1,"text":"t"}]}}})" +
          "\n");
    } else if (choice % 16 == 12) {
      send(id + R"(,"error":)" + filled(R"({"code":1,"message":"@","data":{"kind":"@"}})") + "}\n");
    } else {
      send(id + ",\"result\":" + filled(kResults[byte() % kResults.size()]) + "}\n");
    }
  }
  void open() {
    int pair[2];
    TL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    peer_ = Fd(pair[1]);
    const Inside inside;
    send(R"({"id":1,"result":{"protocol":1}})"
         "\n"
         R"({"id":2,"result":{"session":1,"pid":1}})"
         "\n");
    request_ = 2;
    auto session = Session::open_with({Fd(pair[0]), 1, "fuzz"}, {}, byte() % 2u, inside);
    TL_CHECK(session.has_value());
    (*session)->set_timeout(0);
    session_ = new trapline_session{std::move(*session)};
  }
  void call() {
    trapline_report* report = nullptr;
    trapline_snapshot* snapshot = nullptr;
    int fd = -1;
    const std::uint8_t choice = byte();
    const bool wants_report = choice % 2 == 0;
    trapline_report** const into = wants_report ? &report : nullptr;
    switch (choice / 2 % 8) {
      case 0: {
        const std::string text = piece();
        const char* argument = "argument";
        const trapline_option option{"zdefs", nullptr};
        trapline_program program = TRAPLINE_PROGRAM_INIT;
        program.text = text.data();
        program.text_size = text.size();
        program.arguments = &argument;
        program.argument_count = byte() % 2u;
        program.options = &option;
        program.option_count = byte() % 2u;
        trapline_session_compile_program(session_, &program, into);
        break;
      }
      case 1:
        trapline_session_start(session_, into);
        break;
      case 2:
        trapline_session_stop(session_, into);
        break;
      case 3:
      case 4:
        trapline_session_snapshot(session_, choice % 2u, &snapshot);
        break;
      case 5:
        trapline_session_clear(session_);
        break;
      case 6:
        trapline_session_dispatch(session_, read_record, nullptr);
        break;
      default:
        trapline_session_wait(session_, 0);
        trapline_session_fd(session_, &fd);
    }
    if (report != nullptr) read(report);
    if (snapshot != nullptr) read(snapshot);
  }

  Cursor input_;
  Fd peer_;
  trapline_session* session_ = nullptr;
  std::uint64_t request_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Game(Cursor(std::as_bytes(std::span(data, size)))).play();
  return 0;
}
