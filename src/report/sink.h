// Where reports go: a file, a pipe, a string.
//
// A sink keeps its first failure: each later write reports it again, so that a full disk or a
// closed pipe cannot be overlooked by one caller that ignores a result.

#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace trapline::report {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  // Errors: kOs with the errno of the write (EPIPE, ENOSPC, ...).
  virtual Result<> write(std::string_view bytes) = 0;
  virtual Result<> flush() = 0;
  // What is written from now on goes to the file `path`, behind what is there; empty: where it went
  // first. Errors: kOs; it goes on going where it did.
  virtual Result<> reopen(const std::string& path);
  // Empties the file. Nothing happens where there is no file, as with a pipe.
  virtual Result<> truncate() { return {}; }
};

// Writes to a stdio stream, which the caller owns and keeps open.
class FileSink : public ByteSink {
 public:
  // `name` is for messages: "<stdout>" or the path.
  FileSink(std::FILE* file, std::string name) : file_(file), name_(std::move(name)) {}
  Result<> write(std::string_view bytes) override;
  Result<> flush() override;
  Result<> reopen(const std::string& path) override;
  Result<> truncate() override;

 private:
  Result<> fail(int os_errno);

  std::FILE* file_;
  std::string name_;
  std::optional<Error> failed_;
  Fd first_;  // where it went, once it goes elsewhere
};

class StringSink : public ByteSink {
 public:
  Result<> write(std::string_view bytes) override {
    text_ += bytes;
    return {};
  }
  Result<> flush() override { return {}; }
  const std::string& text() const { return text_; }
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

}  // namespace trapline::report
