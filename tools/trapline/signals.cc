#include "signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

namespace trapline::tool {

Result<Signals> Signals::take() {
  Signals signals;
  // A closed pipe is an error of the write that meets it: processes are still restored.
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction present{};
    ::sigaction(signal, nullptr, &present);
    if (present.sa_handler != SIG_IGN) sigaddset(&wanted, signal);
  }
  if (::sigprocmask(SIG_BLOCK, &wanted, &signals.original_) != 0)
    return Error::os(errno, "sigprocmask");
  signals.fd_ = Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.fd_) return Error::os(errno, "signalfd");
  return signals;
}

void Signals::look() {
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo == SIGUSR1) {
      print_ = true;
    } else {
      ++interrupts_;
    }
  }
}

}  // namespace trapline::tool
