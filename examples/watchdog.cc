// watchdog FUNCTION COMMAND [ARGUMENT...]: runs a command, and reports each call of a function that
// takes more than 10 ms, with its arguments, as it returns.
//
// Here the traced process is another one (Session::attach would take one that runs), and what its
// clauses record is taken when the session's descriptor becomes readable, in a loop as any event
// loop has one.

#include <poll.h>

#include <iostream>
#include <string>
#include <trapline/trapline.hpp>
#include <vector>

namespace {

constexpr char kProgram[] = R"(
pid$target::$1:entry
{
  self->start = timestamp;
  self->first = arg0;
  self->second = arg1;
}

pid$target::$1:return
/self->start && timestamp - self->start > 10000000/
{
  printf("%s(%d, %d): %d ms", probefunc, (int)self->first, (int)self->second,
         (timestamp - self->start) / 1000000);
}

pid$target::$1:return
{
  self->start = 0;
}
)";

// Returns whether there is more to come.
bool report(const trapline::Record& record) {
  switch (record.kind()) {
    case trapline::Record::Kind::kFiring:
      for (std::size_t i = 0; i < record.size(); ++i) std::cout << record[i].text();
      std::cout << " in thread " << record.tid() << std::endl;
      return true;
    case trapline::Record::Kind::kDrops:
      std::cerr << "watchdog: " << trapline::total(record.drops()) << " records were lost\n";
      return true;
    case trapline::Record::Kind::kEnded:
      return false;
    default:
      std::cerr << "watchdog: " << record.text() << '\n';
      return true;
  }
}

void watch(const std::string& function, const std::vector<std::string>& command) {
  trapline::Session session = trapline::Session::launch(command, trapline::Records::kDelivered);
  session.compile(kProgram, trapline::Options().name("watchdog.d").argument(function));
  session.start();
  bool more = true;
  while (more) {
    pollfd ready{session.fd(), POLLIN, 0};
    if (::poll(&ready, 1, -1) <= 0) continue;
    session.dispatch([&](const trapline::Record& record) { more = report(record) && more; });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: watchdog FUNCTION COMMAND [ARGUMENT...]\n";
    return 2;
  }
  try {
    watch(argv[1], std::vector<std::string>(argv + 2, argv + argc));
  } catch (const trapline::Error& error) {
    std::cerr << "watchdog: " << error.what() << '\n';
    for (const trapline::Diagnostic& mistake : error.diagnostics()) std::cerr << mistake << '\n';
    return 1;
  }
}
