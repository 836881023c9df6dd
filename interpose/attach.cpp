#include "interpose/attach.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "interpose/attach_file.h"
#include "interpose/environment.h"
#include "interpose/library_path.h"
#include "interpose/python_api.h"
#include "interpose/raw_log.h"
#include "interpose/startup_module.h"

namespace reprise {
namespace {

constexpr const char *kAttachFolder = "python/attach";

enum State : int { kUndecided, kWanted, kScheduled, kDone };
constinit std::atomic<int> g_state{kUndecided};
constinit std::atomic<int> g_level{0};

using AddPendingCall = int (*)(int (*)(void *), void *);

bool python_is_running() {
    auto *initialized = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
    if (initialized == nullptr) dlerror();  // not the job's error
    return initialized != nullptr && initialized() != 0;
}

// Runs on the interpreter's main thread, with the GIL. Only an interrupt gets through: an error of ours must not become the job's.
int attach_now(void *) {
    if (attached_level() > 0 || python::api() == nullptr) return 0;
    const python::Reference attach(load_attach_file("attach"));
    if (attach && attach.get() == python::api()->none) return 0;
    const python::Reference done(attach ? python::api()->call_with(attach.get(), nullptr) : nullptr);
    if (done) return 0;
    if (python::api()->error_is(*python::api()->interrupt) != 0) return -1;
    python::api()->clear_error();
    return 0;
}

bool find_attach_file(char (&folder)[PATH_MAX]) {
    char file[PATH_MAX + 32];
    if (!find_beside(kAttachFolder, folder, sizeof folder)) return false;
    TextBuffer(file, sizeof file) << folder << "/sitecustomize.py";
    return set_attach_file(file);
}

int decide() {
    char folder[PATH_MAX];
    return is_python_process() && find_attach_file(folder) ? kWanted : kDone;
}

void schedule() {
    const int saved = errno;
    int state = g_state.load(std::memory_order_relaxed);
    if (state == kUndecided) {
        const int decided = decide();
        if (!g_state.compare_exchange_strong(state, decided)) {
            errno = saved;
            return;
        }
        state = decided;
    }
    if (state == kWanted && g_state.compare_exchange_strong(state, kScheduled)) {
        auto *add = reinterpret_cast<AddPendingCall>(dlsym(RTLD_DEFAULT, "Py_AddPendingCall"));
        if (add == nullptr) {
            g_state.store(kDone);
        } else if (!python_is_running() || add(attach_now, nullptr) != 0) {
            g_state.store(kWanted);  // not ready, or the queue of pending calls is full: the next tensor tries again
        }
    }
    errno = saved;
}

// What follows the folder where it is the first one on PYTHONPATH, else nullptr.
const char *behind_on_pythonpath(const char *folder) {
    const char *path = environment("PYTHONPATH");
    const size_t length = strlen(folder);
    if (path == nullptr || strncmp(path, folder, length) != 0) return nullptr;
    return path[length] == ':' ? path + length + 1 : path[length] == '\0' ? path + length : nullptr;
}

// Makes the folder the first one. Its sitecustomize takes it out again.
void put_on_pythonpath(const char *folder) {
    if (behind_on_pythonpath(folder) != nullptr) return;
    const char *path = environment("PYTHONPATH");
    if (path == nullptr || path[0] == '\0') {
        setenv("PYTHONPATH", folder, 1);
        return;
    }
    const size_t size = strlen(folder) + strlen(path) + 2;
    char *joined = static_cast<char *>(malloc(size));
    if (joined == nullptr) return;
    TextBuffer(joined, size) << folder << ":" << path;
    setenv("PYTHONPATH", joined, 1);
    free(joined);
}

// Where a launcher that looked like a Python, and was none, has left it to us.
void take_off_pythonpath(const char *folder) {
    const char *rest = behind_on_pythonpath(folder);
    if (rest == nullptr) return;
    if (rest[0] == '\0') {
        unsetenv("PYTHONPATH");
        return;
    }
    const size_t size = strlen(rest) + 1;
    char *kept = static_cast<char *>(malloc(size));  // setenv may free what it points into
    if (kept == nullptr) return;
    memcpy(kept, rest, size);
    setenv("PYTHONPATH", kept, 1);
    free(kept);
}

bool is_python_name(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash == nullptr ? path : slash + 1;
    return strncmp(name, "python", 6) == 0 || strncmp(name, "pypy", 4) == 0;
}

}  // namespace

bool is_python_process() {
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    if (is_python_name(path) || is_python_name(program_invocation_short_name)) return true;
    const bool embeds = dlsym(RTLD_DEFAULT, "Py_BytesMain") != nullptr;
    if (!embeds) dlerror();  // not the job's error
    return embeds;
}

void attach_at_start() {
    if (python_is_running()) return;  // it has opened us: reprise.attach() by hand, or the first tensor
    char folder[PATH_MAX];
    if (!find_attach_file(folder)) {
        LogLine(LogLevel::kInfo) << "no " << kAttachFolder << " beside libreprise.so: Python frameworks are not instrumented";
        return;
    }
    const char *policy = environment("REPRISE_POLICY"), *way = environment("REPRISE_ATTACH");
    if (policy != nullptr && strcmp(policy, "off") == 0) return;
    if ((way == nullptr || strcmp(way, "path") != 0) && add_startup_module()) return take_off_pythonpath(folder);
    LogLine(LogLevel::kInfo) << "Python is reached by PYTHONPATH (" << (way != nullptr ? "REPRISE_ATTACH" : "it takes no module of ours")
                             << ")";
    put_on_pythonpath(folder);
}

bool attach_files_missing() {
    char folder[PATH_MAX];
    return !find_beside(kAttachFolder, folder, sizeof folder);
}

void note_tensor_allocation() {
    const int state = g_state.load(std::memory_order_relaxed);
    if (state >= kScheduled) [[likely]]
        return;
    if (attached_level() > 0) {
        g_state.store(kDone, std::memory_order_relaxed);
        return;
    }
    schedule();
}

int attached_level() { return g_level.load(std::memory_order_relaxed); }

int raise_attached_level(int level) {
    int now = g_level.load(std::memory_order_relaxed);
    while (now < level && !g_level.compare_exchange_weak(now, level)) {
    }
    return now < level ? level : now;
}

void attach_after_fork() {
    if (g_state.load(std::memory_order_relaxed) == kScheduled && attached_level() == 0) g_state.store(kWanted, std::memory_order_relaxed);
}

}  // namespace reprise
