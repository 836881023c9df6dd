#include "interpose/attach.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "interpose/environment.h"
#include "interpose/library_path.h"
#include "interpose/raw_log.h"
#include "interpose/startup_module.h"

namespace reprise {
namespace {

constexpr const char *kAttachFolder = "python/attach";

enum State : int { kUndecided, kWanted, kScheduled, kDone };
constinit std::atomic<int> g_state{kUndecided};
constinit std::atomic<int> g_level{0};

using AddPendingCall = int (*)(int (*)(void *), void *);
using RunString = int (*)(const char *, void *);
using IsInitialized = int (*)();

// What sitecustomize would have done, and what it takes back: our own entries in sys.path and PYTHONPATH.
constexpr const char *kAttachCode = R"(
import os, sys
sys.path.insert(0, folder)
try:
    import reprise.attach
    reprise.attach.attach()
except KeyboardInterrupt:
    raise
except BaseException as error:
    sys.stderr.write('reprise: cannot attach to this Python: %s: %s; the job runs as without Reprise\\n' % (error.__class__.__name__, error))
finally:
    ours = (folder, folder + '/attach')
    sys.path[:] = [entry for entry in sys.path if entry not in ours]
    kept = [entry for entry in os.environ.get('PYTHONPATH', '').split(':') if entry not in ours]
    if 'PYTHONPATH' in os.environ:
        if any(kept): os.environ['PYTHONPATH'] = ':'.join(kept)
        else: del os.environ['PYTHONPATH']
)";

// Runs on the interpreter's main thread, with the GIL. Never fails for Python: an error here must not become the job's exception.
int attach_now(void *) {
    if (attached_level() > 0) return 0;
    auto *run = reinterpret_cast<RunString>(dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags"));
    char folder[PATH_MAX];
    if (run == nullptr || !find_beside(kAttachFolder, folder, sizeof folder)) return 0;
    char *last = strrchr(folder, '/');
    if (last != nullptr) *last = '\0';  // the packages lie beside attach/
    if (strpbrk(folder, "'\\\n") != nullptr) {
        LogLine(LogLevel::kWarn) << "cannot attach to Python from a folder with a quote or backslash in its name: " << folder;
        return 0;
    }
    // In a namespace of its own: __main__ is the job's.
    char code[PATH_MAX + 2048];
    TextBuffer(code, sizeof code) << "exec(compile('''\n"
                                  << kAttachCode << "''', '<reprise attach>', 'exec'), {'folder': '" << folder << "'})\n";
    run(code, nullptr);
    return 0;
}

int decide() {
    char folder[PATH_MAX];
    if (!is_python_process() || !find_beside(kAttachFolder, folder, sizeof folder)) return kDone;
    return kWanted;
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
        auto *ready = reinterpret_cast<IsInitialized>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
        if (add == nullptr) {
            g_state.store(kDone);
        } else if ((ready != nullptr && ready() == 0) || add(attach_now, nullptr) != 0) {
            g_state.store(kWanted);  // not ready, or the queue of pending calls is full: the next tensor tries again
        }
    }
    errno = saved;
}

// Makes the folder the first one. Its sitecustomize takes it out again.
void put_on_pythonpath(const char *folder) {
    const char *path = environment("PYTHONPATH");
    const size_t length = strlen(folder);
    if (path != nullptr && strncmp(path, folder, length) == 0 && (path[length] == ':' || path[length] == '\0')) return;
    if (path == nullptr || path[0] == '\0') {
        setenv("PYTHONPATH", folder, 1);
        return;
    }
    const size_t size = length + strlen(path) + 2;
    char *joined = static_cast<char *>(malloc(size));
    if (joined == nullptr) return;
    TextBuffer(joined, size) << folder << ":" << path;
    setenv("PYTHONPATH", joined, 1);
    free(joined);
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
    char folder[PATH_MAX], file[PATH_MAX + 32];
    if (!find_beside(kAttachFolder, folder, sizeof folder)) {
        LogLine(LogLevel::kInfo) << "no " << kAttachFolder << " beside libreprise.so: Python frameworks are not instrumented";
        return;
    }
    const char *policy = environment("REPRISE_POLICY"), *way = environment("REPRISE_ATTACH");
    if (policy != nullptr && strcmp(policy, "off") == 0) return;
    TextBuffer(file, sizeof file) << folder << "/sitecustomize.py";
    if ((way == nullptr || strcmp(way, "path") != 0) && add_startup_module(file)) return;
    put_on_pythonpath(folder);
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
