#include "client/failure.h"

#include <pthread.h>

#include <cstring>
#include <memory>
#include <new>

#include "client/inside.h"

namespace trapline::client {
namespace {

// One text a thread. A thread_local object would be destroyed by libc outside of any Inside, and
// the program would see our free(); a key's destructor can enter first.
pthread_key_t text_key;
bool text_key_made = false;
pthread_once_t text_key_once = PTHREAD_ONCE_INIT;

void destroy_text(void* text) {
  const Inside inside;
  delete static_cast<std::string*>(text);
}

void make_key() { text_key_made = pthread_key_create(&text_key, destroy_text) == 0; }

std::string* thread_text() {
  pthread_once(&text_key_once, make_key);
  if (!text_key_made) return nullptr;
  auto* text = static_cast<std::string*>(pthread_getspecific(text_key));
  if (text != nullptr) return text;
  auto made = std::make_unique<std::string>();
  if (pthread_setspecific(text_key, made.get()) != 0) return nullptr;
  return made.release();
}

}  // namespace

Failure os_failure(std::string_view doing, long negative_errno) {
  char buffer[128];
  const char* reason = strerror_r(static_cast<int>(-negative_errno), buffer, sizeof buffer);
  return {TRAPLINE_ERROR_OS, std::string(doing) + ": " + reason};
}

trapline_error remember(Failure failure) noexcept {
  try {
    if (std::string* text = thread_text()) *text = std::move(failure.text);
  } catch (const std::bad_alloc&) {
    // The code says enough.
  }
  return failure.code;
}

trapline_error remember_out_of_memory() noexcept {
  return remember({TRAPLINE_ERROR_MEMORY, "out of memory"});  // short enough to need none
}

const char* remembered_text() noexcept {
  try {
    const std::string* text = thread_text();
    return text != nullptr ? text->c_str() : "";
  } catch (const std::bad_alloc&) {
    return "";
  }
}

}  // namespace trapline::client
