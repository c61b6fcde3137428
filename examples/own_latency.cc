// How long do the calls of one of our own functions take?
//
// No line of the function is changed for it. Entry and return are two probes; what the entry has to
// tell the return is kept in a variable of the thread. The function must have a symbol: not be
// static, not be inlined everywhere.

#include <iostream>
#include <string>
#include <trapline/trapline.hpp>

// Somebody's real work: a page is the longer the greater its number.
extern "C" [[gnu::noinline]] std::size_t render_page(int number) {
  std::string page = "<ol>";
  for (int i = 0; i < number; ++i) page += "<li>" + std::to_string(i * number) + "</li>";
  page += "</ol>";
  return page.size();
}

namespace {

constexpr char kProgram[] = R"(
pid$target:a.out:render_page:entry
{
  self->start = timestamp;
}

pid$target:a.out:render_page:return
/self->start/
{
  @nanoseconds = quantize(timestamp - self->start);
  @slowest = max(timestamp - self->start);
  @calls = count();
  self->start = 0;
}
)";

}  // namespace

int main() {
  try {
    trapline::Session session = trapline::Session::self();
    session.compile(kProgram, trapline::Options().name("own_latency.d"));
    const trapline::Report armed = session.start();
    // A return that cannot be probed would go unseen: better to know.
    for (const trapline::Refusal& place : armed.refusals()) {
      std::cerr << place.probe << ": " << place.reason << '\n';
    }
    std::size_t bytes = 0;
    for (int i = 1; i <= 500; ++i) bytes += render_page(i);
    session.stop();

    const trapline::Snapshot snapshot = session.snapshot();
    std::cout << bytes << " bytes\n" << snapshot["calls"].value() << " calls, nanoseconds each:\n";
    for (const trapline::Bucket& bucket : snapshot["nanoseconds"].histogram()) {
      std::cout << "  " << bucket.low << " to " << bucket.high << ": " << bucket.count << '\n';
    }
    std::cout << "slowest " << snapshot["slowest"].value() << '\n';
  } catch (const trapline::Error& error) {
    std::cerr << "own_latency: " << error.what() << '\n';
    for (const trapline::Diagnostic& mistake : error.diagnostics()) std::cerr << mistake << '\n';
    return 1;
  }
}
