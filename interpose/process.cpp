// The one constructor, the fork handlers, and what is said at the end of the process.
//
// The constructor runs on the loading thread, after the libraries that it does not precede: the hooks have been running for long by then,
// so it only does what they do not need. Who speaks at the end: the topmost process that could attach (a Python, or an importer of the
// API), known by REPRISE_OWNER_PID in the environment of those below it; the children of a job, compilers, shells and servers stay silent.
#include "interpose/process.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>

#include "allocator/allocator.h"
#include "interpose/attach.h"
#include "interpose/caller.h"
#include "interpose/engine.h"
#include "interpose/environment.h"
#include "interpose/interposed.h"
#include "interpose/library_path.h"
#include "interpose/module.h"
#include "interpose/next.h"
#include "interpose/raw_log.h"
#include "interpose/start.h"

namespace reprise {
namespace {

constexpr const char *kOwnerVariable = "REPRISE_OWNER_PID";

constinit pid_t g_owner_pid = 0;  // this process speaks at its end; a forked child has another pid
constinit int g_require_socket = -1;
constinit std::atomic<bool> g_announced{false};
constinit bool g_python = false;

void format_pid(char (&text)[24], uint64_t pid) {
    char *at = text + sizeof text - 1;
    *at = '\0';
    do {
        *--at = static_cast<char>('0' + pid % 10);
        pid /= 10;
    } while (pid != 0);
    memmove(text, at, static_cast<size_t>(text + sizeof text - at));
}

// The name, in the abstract namespace, at which the owner hears that a process below it has attached.
socklen_t owner_address(const char *pid, sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    TextBuffer(address->sun_path + 1, sizeof address->sun_path - 1) << "reprise-require-" << pid;
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + strlen(address->sun_path + 1));
}

void listen_for_children(const char *pid) {
    sockaddr_un address;
    const socklen_t length = owner_address(pid, &address);
    g_require_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (g_require_socket < 0) return;
    if (bind(g_require_socket, reinterpret_cast<sockaddr *>(&address), length) == 0) return;
    close(g_require_socket);
    g_require_socket = -1;
}

void tell_owner() {
    const char *owner = environment(kOwnerVariable);
    if (owner == nullptr || !environment_flag("REPRISE_REQUIRE")) return;
    const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) return;
    sockaddr_un address;
    const socklen_t length = owner_address(owner, &address);
    // Nobody there: the owner has gone, or needs no telling.
    [[maybe_unused]] const ssize_t sent = sendto(descriptor, "1", 1, MSG_NOSIGNAL, reinterpret_cast<sockaddr *>(&address), length);
    close(descriptor);
}

bool child_attached() {
    char byte = 0;
    return g_require_socket >= 0 && recv(g_require_socket, &byte, 1, MSG_DONTWAIT) == 1;
}

// Becomes the owner unless a process above is. An exec keeps the pid: then this process still is.
void claim_ownership() {
    char pid[24];
    format_pid(pid, static_cast<uint64_t>(getpid()));
    const char *owner = environment(kOwnerVariable);
    if (owner != nullptr && owner[0] != '\0' && strcmp(owner, pid) != 0) return;
    if (setenv(kOwnerVariable, pid, 1) != 0) return;
    g_owner_pid = getpid();
    if (environment_flag("REPRISE_REQUIRE")) listen_for_children(pid);
}

void fork_prepare() {
    engine_fork_prepare();
    if (allocator_in_use()) allocator_fork_prepare();
}
void fork_parent() {
    if (allocator_in_use()) allocator_fork_parent();
    engine_fork_parent();
}
void fork_child() {
    if (allocator_in_use()) allocator_fork_child();
    attach_after_fork();
    engine_fork_child();
}

void say_nothing_attached(bool required) {
    LogLine line(required ? LogLevel::kError : LogLevel::kWarn);
    line << "nothing was attached in " << program_invocation_short_name << " (process " << static_cast<uint64_t>(getpid()) << "): ";
    if (!interposed()) {
        line << "another allocator comes before libreprise.so, which must be the first in LD_PRELOAD";
    } else if (g_python && attached_level() == 0 && attach_files_missing()) {
        line << "no python/attach, which instruments frameworks, is in " << library_directory()
             << " beside libreprise.so: install all of Reprise, not the library alone";
    } else if (tensor_library_seen()) {
        line << "tensors were seen, but no segment began: activations are not checkpointed here, or the framework's version is not "
                "supported";
    } else if (g_python && attached_level() == 0) {
        line << "no tensor was allocated and no supported framework was instrumented (torch was not imported)";
    } else if (g_python) {
        line << "no supported framework began a checkpoint";
    } else {
        line << "no segment began";
    }
    if (required) line << "; REPRISE_REQUIRE is set, so this is an error";
}

// Registered by the constructor, before the program's own start: of all exit handlers it is among the last to run, after main's and after
// the destructors of libraries, and it is told the status.
void at_exit(int status, void *) {
    const bool speaks = g_owner_pid == getpid() || log_level() >= LogLevel::kInfo;
    if (!speaks || engine_if_open() != nullptr || attached_level() >= 2) return;
    const bool required = g_owner_pid == getpid() && environment_flag("REPRISE_REQUIRE");
    if (required && child_attached()) return;
    const char *policy = environment("REPRISE_POLICY");
    if (!required && policy != nullptr && strcmp(policy, "off") == 0) return;
    say_nothing_attached(required);
    if (!required || status != 0) return;
    fflush(nullptr);  // what the job has written and exit() would flush after us
    _exit(1);
}

__attribute__((constructor)) void construct() {
    if (getauxval(AT_SECURE) != 0) return;  // raised privileges: hooks pass through, nothing is read from the environment
    const int saved = errno;
    resolve_next();
    pthread_atfork(fork_prepare, fork_parent, fork_child);
    remember_relative_directory();
    g_python = is_python_process();
    const bool candidate = g_python || executable_imports("reprise_segment_begin");
    if (candidate || environment_flag("REPRISE_REQUIRE")) claim_ownership();
    if (g_owner_pid != 0) complain_of_log_level();
    if (g_owner_pid != 0 || log_level() >= LogLevel::kInfo) on_exit(at_exit, nullptr);
    if (g_python) attach_at_start();
    errno = saved;
}

}  // namespace

void announce_attached() {
    if (!g_announced.exchange(true)) tell_owner();
}

}  // namespace reprise
