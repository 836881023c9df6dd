#include "cli/child.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace reprise::cli {
namespace {

constexpr size_t kMostOutput = size_t{1} << 20;

int64_t now_ms() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

}  // namespace

ChildResult run_and_read(const std::vector<std::string> &program, const std::vector<std::pair<std::string, std::string>> &environment,
                         int seconds) {
    ChildResult result;
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0) return result;
    if (pipe2(err, O_CLOEXEC) != 0) {
        close(out[0]);
        close(out[1]);
        return result;
    }
    signal(SIGCHLD, SIG_DFL);  // ignored, as some launchers leave it, it would take the child's status with it
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);  // so that what it starts ends with it
        const int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        for (const auto &[name, value] : environment) value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
        std::vector<char *> arguments;
        for (const std::string &word : program) arguments.push_back(const_cast<char *>(word.c_str()));
        arguments.push_back(nullptr);
        execvp(arguments[0], arguments.data());
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    result.started = child > 0;
    const int64_t deadline = now_ms() + int64_t{seconds} * 1000;
    pollfd files[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
    std::string *texts[2] = {&result.out, &result.err};
    while (child > 0 && (files[0].fd >= 0 || files[1].fd >= 0)) {
        const int64_t left = deadline - now_ms();
        if (left <= 0 || (poll(files, 2, static_cast<int>(left)) == 0)) {
            result.timed_out = true;
            kill(-child, SIGKILL);
            break;
        }
        for (int i = 0; i < 2; ++i) {
            if (files[i].fd < 0 || files[i].revents == 0) continue;
            char buffer[4096];
            const ssize_t got = read(files[i].fd, buffer, sizeof buffer);
            if (got > 0 && texts[i]->size() < kMostOutput) texts[i]->append(buffer, static_cast<size_t>(got));
            if (got == 0 || (got < 0 && errno != EINTR)) files[i].fd = -1;
        }
    }
    close(out[0]);
    close(err[0]);
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child > 0) result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return result;
}

}  // namespace reprise::cli
