// Keeps a write of ours from killing the job: a pipe that nobody reads any more and a file at its size limit raise SIGPIPE and SIGXFSZ,
// whose default action ends a process that would never have written there itself.
//
// Used around each write that Reprise does for its own sake (messages, records, reports), on the writing thread, in any library. Both
// signals are directed at the writing thread: blocked here, one that our own write raised is taken back before they are unblocked.
#pragma once

#include <errno.h>
#include <signal.h>
#include <time.h>

namespace reprise {

class QuietSignals {
  public:
    QuietSignals() {
        sigset_t pending;
        sigemptyset(&ours_);
        sigemptyset(&pending);
        sigpending(&pending);
        for (const int signal : {SIGPIPE, SIGXFSZ}) {
            if (sigismember(&pending, signal) == 0) sigaddset(&ours_, signal);  // one that waits already is the job's
        }
        blocked_ = pthread_sigmask(SIG_BLOCK, &ours_, &before_) == 0;
    }
    ~QuietSignals() {
        if (!blocked_) return;
        const int saved = errno;
        const timespec now{0, 0};
        while (sigtimedwait(&ours_, nullptr, &now) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = saved;
    }
    QuietSignals(const QuietSignals &) = delete;
    QuietSignals &operator=(const QuietSignals &) = delete;

  private:
    sigset_t ours_, before_;
    bool blocked_ = false;
};

}  // namespace reprise
