/* What libreprise_parallel.so brings into a process that has nothing but libc. Usage: probe PLUGIN SYSTEM_TBB. Fails with a line that says
 * what was wrong. Checks: opens, runs every index once on more than one thread (where there is more than one CPU), maps no file of the
 * system's TBB, TBB allocator or C++ runtime; the system's TBB then loads as another library; a forked child still gets its work done. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void (*parallel_for)(size_t count, void (*body)(void *, size_t), void *context);
typedef int (*open_function)(unsigned workers, parallel_for *run, unsigned *workers_out);

enum { kCount = 5000 };
static atomic_int ran[kCount];
static atomic_long threads_seen[2]; /* the caller, and any other */
static pthread_t caller;
static atomic_int unmasked_workers;

static void body(void *context, size_t index) {
    struct timespec pause = {0, 20000};
    (void)context;
    atomic_fetch_add(&ran[index], 1);
    if (pthread_equal(pthread_self(), caller)) {
        atomic_fetch_add(&threads_seen[0], 1);
    } else {
        sigset_t mask;
        atomic_fetch_add(&threads_seen[1], 1);
        pthread_sigmask(SIG_SETMASK, NULL, &mask);
        if (!sigismember(&mask, SIGUSR1) || !sigismember(&mask, SIGTERM)) atomic_fetch_add(&unmasked_workers, 1);
    }
    if (index % 16 == 0) nanosleep(&pause, NULL);
}

static int fail(const char *what, const char *detail) {
    fprintf(stderr, "parallel_plugin_probe: %s: %s\n", what, detail ? detail : "");
    return 1;
}

/* The first mapped file whose name (after the last slash) begins with `prefix`; NULL when none. */
static const char *mapped(const char *prefix) {
    static char line[4600];
    const char *found = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        char *name = strrchr(line, '/');
        if (name && strncmp(name + 1, prefix, strlen(prefix)) == 0) found = line;
    }
    if (maps) fclose(maps);
    return found;
}

static int check_run(parallel_for run) {
    for (int i = 0; i < kCount; i++) atomic_store(&ran[i], 0);
    for (int round = 1; round <= 3; round++) {
        run(kCount, body, NULL);
        for (int i = 0; i < kCount; i++)
            if (atomic_load(&ran[i]) != round) return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    cpu_set_t cpus;
    if (argc != 3) return fail("usage", "parallel_plugin_probe PLUGIN SYSTEM_TBB");
    caller = pthread_self();
    if (mapped("libstdc++")) return fail("this program was to be free of C++, but has", mapped("libstdc++"));

    void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return fail("cannot open the plugin", dlerror());
    open_function open_parallel = (open_function)(size_t)dlsym(plugin, "reprise_parallel_open");
    if (!open_parallel) return fail("no reprise_parallel_open", dlerror());
    parallel_for run = NULL;
    unsigned workers = 0;
    int error = open_parallel(0, &run, &workers);
    if (error) return fail("reprise_parallel_open", strerror(error));
    if (open_parallel(0, NULL, &workers) == 0) return fail("reprise_parallel_open", "took a null pointer");
    sched_getaffinity(0, sizeof cpus, &cpus);
    if ((int)workers != CPU_COUNT(&cpus)) return fail("workers", "not as many as CPUs");

    if (!check_run(run)) return fail("parallel for", "an index did not run exactly once");
    if (workers > 1 && atomic_load(&threads_seen[1]) == 0) return fail("parallel for", "only the calling thread took part");
    if (atomic_load(&unmasked_workers)) return fail("workers", "a worker can take the job's signals");

    const char *forbidden[] = {"libtbb.so", "libtbb12.so", "libtbbmalloc", "libtbbbind", "libstdc++.so"};
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        if (mapped(forbidden[i])) return fail("the plugin brought in", mapped(forbidden[i]));
    if (!mapped("libreprise_tbb.so") || !mapped("libreprise_stdcxx.so")) return fail("private copies", "not mapped");

    void *theirs = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
    if (!theirs) return fail("the system's TBB does not load after the plugin", dlerror());
    if (!mapped("libtbb.so")) return fail("the system's TBB", "was taken for the private copy");
    Dl_info info;
    void *version = dlsym(theirs, "TBB_runtime_version");
    if (!version || !dladdr(version, &info) || strstr(info.dli_fname, "libreprise"))
        return fail("TBB_runtime_version", "is the private one");
    if (!check_run(run)) return fail("parallel for beside another TBB", "an index did not run exactly once");

    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        _exit(check_run(run) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) return fail("a forked child", "did not get its work done");
    printf("ok: %u workers\n", workers);
    return 0;
}
