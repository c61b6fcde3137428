// The C interface: sessions and records' delivery. See the public header for what each promises.

#include <trapline/trapline.h>

#include <cstring>
#include <memory>
#include <utility>

#include "client/handle.h"
#include "client/session.h"

namespace trapline::client {
namespace {

constexpr unsigned kSessionFlags = TRAPLINE_RECORDS;
constexpr unsigned kSnapshotFlags = TRAPLINE_SNAPSHOT_TEXT;

Failure bad_argument(const char* text) { return {TRAPLINE_ERROR_ARGUMENT, text}; }

trapline_error open_session(Target target, unsigned flags, trapline_session** session) {
  return guarded([&]() -> Outcome<> {
    if ((flags & ~kSessionFlags) != 0) return bad_argument("a flag of the session is not known");
    const Inside inside;
    Outcome<std::shared_ptr<Session>> opened = Session::open(std::move(target), flags, inside);
    if (!opened) return Failure(std::move(opened).error());
    *session = new trapline_session{std::move(*opened)};
    return {};
  });
}

// Runs `body(Session&, const Inside&)` for a session that this process owns.
template <typename Body>
trapline_error with_session(trapline_session* session, Body&& body) {
  const Inside inside;
  if (session == nullptr) return remember(bad_argument("the session is NULL"));
  return guarded([&]() -> Outcome<> {
    TC_TRY(session->implementation->check_owner());
    return body(*session->implementation, inside);
  });
}

// Hands a report to a caller who wants it.
void give(std::unique_ptr<trapline_report> from, trapline_report** to) {
  if (to != nullptr) *to = from.release();
}

Outcome<> give(Outcome<std::unique_ptr<trapline_report>> from, trapline_report** to) {
  if (!from) return Failure(std::move(from).error());
  give(std::move(*from), to);
  return {};
}

Outcome<> check_program(const trapline_program* program) {
  if (program == nullptr) return bad_argument("the program is NULL");
  if (program->struct_size != sizeof(trapline_program)) {
    return bad_argument(
        "the program's struct_size is not this version's: use TRAPLINE_PROGRAM_INIT");
  }
  if (program->text == nullptr) return bad_argument("the program's text is NULL");
  if (program->arguments == nullptr && program->argument_count != 0) {
    return bad_argument("the program's arguments are NULL");
  }
  if (program->options == nullptr && program->option_count != 0) {
    return bad_argument("the program's options are NULL");
  }
  for (std::size_t i = 0; i < program->argument_count; ++i) {
    if (program->arguments[i] == nullptr) return bad_argument("an argument of the program is NULL");
  }
  for (std::size_t i = 0; i < program->option_count; ++i) {
    if (program->options[i].name == nullptr) return bad_argument("an option's name is NULL");
  }
  return {};
}

Outcome<> dispatch(const std::shared_ptr<Session>& session, trapline_record_callback callback,
                   void* user, const Inside& inside) {
  auto arrived = session->take_arrived();
  if (!arrived) return Failure(std::move(arrived).error());
  for (const auto& batch : *arrived) {
    for (const trapline_record& record : batch->records) {
      if (session->closed()) return {};  // by the callback
      const Outside outside(inside);
      callback(&record, user);
    }
  }
  return {};
}

}  // namespace
}  // namespace trapline::client

using namespace trapline::client;

trapline_error trapline_session_self(unsigned flags, trapline_session** session) {
  const Inside inside;
  if (session == nullptr) return remember(bad_argument("the session's place is NULL"));
  *session = nullptr;
  return open_session({}, flags, session);
}

trapline_error trapline_session_attach(int pid, unsigned flags, trapline_session** session) {
  const Inside inside;
  if (session == nullptr) return remember(bad_argument("the session's place is NULL"));
  *session = nullptr;
  if (pid <= 0) return remember(bad_argument("the process's id is not positive"));
  Target target;
  target.kind = Target::Kind::kProcess;
  target.pid = pid;
  return open_session(std::move(target), flags, session);
}

trapline_error trapline_session_launch(const char* const* arguments, unsigned flags,
                                       trapline_session** session) {
  const Inside inside;
  if (session == nullptr) return remember(bad_argument("the session's place is NULL"));
  *session = nullptr;
  if (arguments == nullptr || *arguments == nullptr) {
    return remember(bad_argument("there is no program to launch"));
  }
  return guarded([&]() -> Outcome<> {
    Target target;
    target.kind = Target::Kind::kCommand;
    for (; *arguments != nullptr; ++arguments) target.arguments.emplace_back(*arguments);
    const trapline_error error = open_session(std::move(target), flags, session);
    if (error != TRAPLINE_OK) return Failure{error, remembered_text()};
    return {};
  });
}

void trapline_session_destroy(trapline_session* session) {
  if (session == nullptr) return;
  const Inside inside;
  const std::unique_ptr<trapline_session> owned(session);
  const std::shared_ptr<Session> implementation = std::move(owned->implementation);
  if (!implementation->check_owner()) {
    // What a thread of the parent was changing when it forked is better leaked than freed.
    if (implementation->was_in_use()) {
      static_cast<void>(new (std::nothrow) std::shared_ptr<Session>(implementation));
    }
    return;
  }
  static_cast<void>(guarded([&]() -> Outcome<> {
    implementation->delivery().stop(inside);
    implementation->close(inside);
    return {};
  }));
}

int trapline_session_pid(const trapline_session* session) { return session->implementation->pid(); }

int trapline_session_helper_pid(const trapline_session* session) {
  return session->implementation->helper_pid();
}

trapline_error trapline_session_set_timeout(trapline_session* session, int milliseconds) {
  return with_session(session, [&](Session& self, const Inside&) -> Outcome<> {
    self.set_timeout(milliseconds);
    return {};
  });
}

trapline_error trapline_session_compile(trapline_session* session, const char* text,
                                        trapline_report** report) {
  const Inside inside;
  trapline_program program = TRAPLINE_PROGRAM_INIT;
  program.text = text;
  program.text_size = text != nullptr ? std::strlen(text) : 0;
  return trapline_session_compile_program(session, &program, report);
}

trapline_error trapline_session_compile_program(trapline_session* session,
                                                const trapline_program* program,
                                                trapline_report** report) {
  if (report != nullptr) *report = nullptr;
  return with_session(session, [&](Session& self, const Inside& inside) -> Outcome<> {
    TC_TRY(check_program(program));
    std::unique_ptr<trapline_report> mistakes;
    Outcome<> result = give(self.compile(*program, &mistakes, inside), report);
    if (!result && mistakes) give(std::move(mistakes), report);
    return result;
  });
}

trapline_error trapline_session_start(trapline_session* session, trapline_report** report) {
  if (report != nullptr) *report = nullptr;
  return with_session(session, [&](Session& self, const Inside& inside) -> Outcome<> {
    return give(self.start(inside), report);
  });
}

trapline_error trapline_session_stop(trapline_session* session, trapline_report** report) {
  if (report != nullptr) *report = nullptr;
  return with_session(session, [&](Session& self, const Inside& inside) -> Outcome<> {
    return give(self.stop(inside), report);
  });
}

trapline_error trapline_session_snapshot(trapline_session* session, unsigned flags,
                                         trapline_snapshot** snapshot) {
  if (snapshot != nullptr) *snapshot = nullptr;
  return with_session(session, [&](Session& self, const Inside& inside) -> Outcome<> {
    if (snapshot == nullptr) return bad_argument("the snapshot's place is NULL");
    if ((flags & ~kSnapshotFlags) != 0) return bad_argument("a flag of the snapshot is not known");
    Outcome<std::unique_ptr<trapline_snapshot>> taken = self.snapshot(flags, inside);
    if (!taken) return Failure(std::move(taken).error());
    *snapshot = taken->release();
    return {};
  });
}

trapline_error trapline_session_clear(trapline_session* session) {
  return with_session(
      session, [](Session& self, const Inside& inside) -> Outcome<> { return self.clear(inside); });
}

trapline_error trapline_session_wait(trapline_session* session, int milliseconds) {
  return with_session(session, [&](Session& self, const Inside& inside) -> Outcome<> {
    return self.wait(milliseconds, inside);
  });
}

trapline_error trapline_session_fd(trapline_session* session, int* fd) {
  if (fd != nullptr) *fd = -1;
  return with_session(session, [&](Session& self, const Inside& inside) -> Outcome<> {
    if (fd == nullptr) return bad_argument("the descriptor's place is NULL");
    const Outcome<int> pollable = self.pollable(inside);
    if (!pollable) return Failure(pollable.error());
    *fd = *pollable;
    return {};
  });
}

trapline_error trapline_session_dispatch(trapline_session* session,
                                         trapline_record_callback callback, void* user) {
  return with_session(session, [&](Session&, const Inside& inside) -> Outcome<> {
    if (callback == nullptr) return bad_argument("the callback is NULL");
    // A copy: the callback may destroy the handle.
    const std::shared_ptr<Session> self = session->implementation;
    return dispatch(self, callback, user, inside);
  });
}

trapline_error trapline_session_set_callback(trapline_session* session,
                                             trapline_record_callback callback, void* user) {
  return with_session(session, [&](Session& self, const Inside& inside) -> Outcome<> {
    return self.delivery().set_callback(session->implementation, callback, user, inside);
  });
}
