#include "interpose/engine.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>

#include "interpose/environment.h"
#include "interpose/interposed.h"
#include "interpose/library_path.h"
#include "interpose/process.h"
#include "interpose/raw_log.h"
#include "interpose/start.h"

namespace reprise {
namespace {

constexpr const char *kEngineFile = "libreprise_engine.so";
// How long a thread waits for another one that is opening the engine. Bounded, because that one may need the loader's lock, and this one
// may hold it (a library's constructor that begins a segment).
constexpr time_t kOpenWaitSeconds = 20;

constinit std::atomic<const reprise_engine_table *> g_table{nullptr};
constinit std::atomic<bool> g_failed{false};
pthread_mutex_t g_opening = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
bool g_locked_for_fork = false;
bool g_inside = false;          // under g_opening: the opening thread itself came back
char g_reason[PATH_MAX + 512];  // written once, under g_opening, before g_failed
thread_local constinit const char *t_failure = "";

void fail(const char *what, const char *detail, const char *remedy) {
    TextBuffer(g_reason, sizeof g_reason) << what << detail << "; segments run unprotected, as without Reprise. " << remedy;
    LogLine(LogLevel::kError) << g_reason;
    g_failed.store(true, std::memory_order_release);
}

void at_exit() {
    if (const reprise_engine_table *table = engine_if_open()) table->at_exit();
}

bool find_engine(char *path, size_t capacity) {
    if (const char *chosen = environment("REPRISE_ENGINE")) {
        TextBuffer(path, capacity) << chosen;
        return true;
    }
    return find_beside(kEngineFile, path, capacity);
}

// Under g_opening.
void open_engine() {
    char path[PATH_MAX];
    if (!find_engine(path, sizeof path)) {
        fail(kEngineFile, " is neither beside libreprise.so nor in reprise/ below it",
             "Install it there (or build the target reprise_engine).");
        return;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char *error = dlerror();
        fail("the engine cannot be loaded: ", error != nullptr ? error : path,
             "Install the libraries that it names, or build it on this machine.");
        return;
    }
    auto *open = reinterpret_cast<reprise_engine_open_function>(dlsym(handle, "reprise_engine_open"));
    if (open == nullptr) {
        dlerror();
        fail(path, " does not export reprise_engine_open", "It is not Reprise's engine: check REPRISE_ENGINE and the installation.");
        return;
    }
    ensure_allocator_started();
    const reprise_engine_table *table = nullptr;
    if (const int refused = open(allocator_port(), &table); refused != 0 || table == nullptr) {
        if (refused == REPRISE_OUT_OF_MEMORY) {
            fail(path, " did not get the memory that it needs to start", "Raise the limit on memory or address space (ulimit -v).");
        } else {
            fail(path, " refused to start", "It is broken or of another version: install it anew.");
        }
        return;
    }
    if (table->abi != REPRISE_ENGINE_ABI || table->size < sizeof(reprise_engine_table)) {
        fail(path, " belongs to another version of libreprise.so", "Install both from one build.");
        return;
    }
    // After the engine's libraries have registered theirs, so that ours runs before their destructors.
    if (atexit(at_exit) != 0) LogLine(LogLevel::kWarn) << "no exit handler could be registered: there will be no summary";
    g_table.store(table, std::memory_order_release);
    announce_attached();
}

bool lock_bounded() {
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += kOpenWaitSeconds;
    return pthread_mutex_timedlock(&g_opening, &until) == 0;
}

}  // namespace

const reprise_engine_table *engine_if_open() { return g_table.load(std::memory_order_acquire); }

const reprise_engine_table *engine() {
    if (const reprise_engine_table *table = engine_if_open()) [[likely]]
        return table;
    const int saved = errno;
    if (!g_failed.load(std::memory_order_acquire)) {
        check_interposed_once();
        if (!lock_bounded()) {
            t_failure =
                "another thread has been opening the engine for 20 s: it waits for a library that is being loaded; do not begin segments "
                "in a "
                "library's constructor";
            errno = saved;
            return nullptr;
        }
        if (g_inside) {
            t_failure = "Reprise was called while it was opening its engine";
        } else if (engine_if_open() == nullptr && !g_failed.load(std::memory_order_acquire)) {
            g_inside = true;
            open_engine();
            g_inside = false;
        }
        pthread_mutex_unlock(&g_opening);
    }
    errno = saved;
    if (g_failed.load(std::memory_order_acquire)) t_failure = g_reason;
    return engine_if_open();
}

const char *engine_failure() { return t_failure; }
void clear_engine_failure() { t_failure = ""; }
void set_failure(const char *static_text) { t_failure = static_text; }

void engine_fork_prepare() {
    g_locked_for_fork = lock_bounded();
    if (const reprise_engine_table *table = engine_if_open()) table->fork_prepare();
}
void engine_fork_parent() {
    if (const reprise_engine_table *table = engine_if_open()) table->fork_parent();
    if (g_locked_for_fork) pthread_mutex_unlock(&g_opening);
}
void engine_fork_child() {
    // The child's only thread is the one that holds the mutex, but under another thread id: made anew instead of unlocked.
    pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    __builtin_memcpy(&g_opening, &fresh, sizeof fresh);
    if (!g_locked_for_fork && engine_if_open() == nullptr) {
        TextBuffer(g_reason, sizeof g_reason)
            << "this process was forked while another thread was opening the engine: segments run unprotected";
        g_failed.store(true, std::memory_order_release);
    }
    if (const reprise_engine_table *table = engine_if_open()) table->fork_child();
}

}  // namespace reprise
