// What a trapline_session points to.

#pragma once

#include <trapline/trapline.h>

#include <memory>

namespace trapline::client {
class Session;
}

struct trapline_session {
  // Shared: a callback may destroy the handle while the library is still delivering.
  std::shared_ptr<trapline::client::Session> implementation;
};
