// The plugin in a program whose global scope holds the system's TBB and C++ runtime, both in use. Opened RTLD_DEEPBIND it must use its own
// copies; opened without, it must either do so or refuse, never run on the other TBB. The program's TBB works before and after.
#include <dlfcn.h>
#include <sys/wait.h>
#include <tbb/parallel_for.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <locale>
#include <sstream>
#include <string>

#include "kernels/kernels.h"

namespace {

using reprise::kernels::ParallelFor;
using Open = int (*)(unsigned, ParallelFor *, unsigned *);

void require(bool holds, const char *what) {
    if (holds) return;
    const char *detail = dlerror();
    std::fprintf(stderr, "parallel_plugin_guest: %s (%s)\n", what, detail ? detail : "no loader error");
    std::exit(1);
}

int own_sum() {
    std::atomic<int> sum{0};
    tbb::parallel_for(0, 1000, [&](int i) { sum += i; });
    return sum;
}

void use_own_runtime() {
    require(own_sum() == 499500, "the program's own TBB does not work");
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text << 1234.5 << ' ' << 42;
    require(text.str() == "1234.5 42", "the program's own C++ runtime does not work");
    try {
        throw std::string("x");
    } catch (const std::string &) {
    }
}

int try_plugin(const char *path, int mode) {
    void *plugin = dlopen(path, mode);
    require(plugin != nullptr, "the plugin does not open");
    auto open = reinterpret_cast<Open>(dlsym(plugin, "reprise_parallel_open"));
    require(open != nullptr, "no reprise_parallel_open");
    ParallelFor run = nullptr;
    unsigned workers = 0;
    int error = open(0, &run, &workers);
    if (error != 0) return error;
    std::atomic<size_t> sum{0};
    run(
        1000, [](void *context, size_t i) { *static_cast<std::atomic<size_t> *>(context) += i; }, &sum);
    require(sum == 499500, "the plugin lost an index");
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    require(argc == 2, "usage: parallel_plugin_guest PLUGIN");
    use_own_runtime();
    pid_t child = fork();  // its own process, so that each way of opening is the first
    if (child == 0) {
        int error = try_plugin(argv[1], RTLD_NOW | RTLD_LOCAL);
        require(error == ELIBACC, "bound to the program's TBB, the plugin did not refuse");
        std::_Exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "opened without RTLD_DEEPBIND");
    require(try_plugin(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) == 0, "opened with RTLD_DEEPBIND, the plugin refused");
    use_own_runtime();
    std::cout << "ok" << std::endl;
    return 0;
}
