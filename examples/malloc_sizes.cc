// Which sizes does a part of this program allocate?
//
// A session traces the program itself: the part in question runs between start() and stop(), at
// full speed but for about two nanoseconds a call of malloc. Other threads would be counted, too;
// the library's own work never is.

#include <iostream>
#include <map>
#include <string>
#include <trapline/trapline.hpp>

namespace {

std::size_t part_in_question() {
  std::map<int, std::string> names;
  for (int i = 0; i < 1000; ++i) names[i] = std::string(200, 'x');
  return names.size();
}

}  // namespace

int main() {
  try {
    trapline::Session session = trapline::Session::self();
    session.compile(
        "pid$target::malloc:entry { @calls = count(); @bytes = sum(arg0); @sizes = quantize(arg0); "
        "}");
    session.start();
    const std::size_t names = part_in_question();
    session.stop();

    const trapline::Snapshot snapshot = session.snapshot();
    std::cout << names << " names: " << snapshot["calls"].value() << " calls of malloc, "
              << snapshot["bytes"].value() << " bytes\n";
    for (const trapline::Bucket& bucket : snapshot["sizes"].histogram()) {
      std::cout << "  " << bucket.low << " to " << bucket.high << ": " << bucket.count << '\n';
    }
  } catch (const trapline::Error& error) {
    std::cerr << "malloc_sizes: " << error.what() << '\n';
    return 1;
  }
}
