// A server that can be asked, while it runs, what sizes its requests allocate.
//
// It answers each line of its standard input; the line "sizes" prints the histogram so far, "reset"
// starts it anew. The session runs all the time: reading it takes well under a millisecond and
// stops nobody. SIGUSR1 would do as well as a line: it would have to be taken by signalfd() or
// sigwait(), as a signal handler may not call the library.

#include <iostream>
#include <string>
#include <trapline/trapline.hpp>

namespace {

// What the server is for: a line, turned round.
std::string answer(const std::string& request) {
  std::string result(request.rbegin(), request.rend());
  std::string padded = std::string(100, ' ') + result;  // something to allocate
  return padded.substr(100);
}

void print_sizes(const trapline::Session& session) {
  const trapline::Snapshot snapshot = session.snapshot();
  std::cout << snapshot["large"].value() << " allocations of 100 bytes and more\n"
            << snapshot << std::flush;
}

}  // namespace

int main() {
  // What reading a line takes is allocated now, not among the requests.
  std::ios::sync_with_stdio(false);
  std::string line;
  line.reserve(4096);
  try {
    trapline::Session session = trapline::Session::self();
    session.compile(R"(
      pid$target::malloc:entry                { @sizes = quantize(arg0); }
      pid$target::malloc:entry /arg0 >= 100/  { @large = count(); }
    )");
    session.start();

    while (std::getline(std::cin, line)) {
      if (line == "sizes") {
        print_sizes(session);
      } else if (line == "reset") {
        session.clear();
      } else {
        std::cout << answer(line) << std::endl;
      }
    }
  } catch (const trapline::Error& error) {
    std::cerr << "live_histogram: " << error.what() << '\n';
    return 1;
  }
}
