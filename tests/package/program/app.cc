#include <cstdlib>
#include <iostream>
#include <trapline/trapline.hpp>
#include <vector>

int main() {
  trapline::Session session = trapline::Session::self();
  session.compile("pid$target::malloc:entry { @sizes = quantize(arg0); @calls = count(); }");
  session.start();
  std::vector<void*> kept;
  for (int i = 0; i < 1000; ++i) kept.push_back(std::malloc(100));
  session.stop();
  trapline::Snapshot snapshot = session.snapshot();
  std::cout << snapshot["calls"].value() << '\n';
  for (const trapline::Bucket& bucket : snapshot["sizes"].histogram())
    std::cout << bucket.low << ".." << bucket.high << ": " << bucket.count << '\n';
  std::cout << snapshot;
  for (void* block : kept) std::free(block);
}
