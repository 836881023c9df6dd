#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace {

std::vector<std::string> merged_environment(const std::map<std::string, std::string> &added) {
    std::vector<std::string> merged;
    for (char **entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        const std::string name = text.substr(0, text.find('='));
        const bool ours = name.rfind("REPRISE_", 0) == 0 || name.rfind("LD_", 0) == 0 || name.rfind("PYTHON", 0) == 0;
        if (!ours && added.count(name) == 0) merged.push_back(text);
    }
    for (const auto &[name, value] : added) merged.push_back(name + "=" + value);
    return merged;
}

std::vector<char *> pointers(std::vector<std::string> &strings) {
    std::vector<char *> result;
    for (std::string &text : strings) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
}

}  // namespace

ChildResult run_child(const std::vector<std::string> &command, const ChildOptions &options) {
    int out[2];
    int err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    std::vector<std::string> arguments = command;
    std::vector<std::string> environment = merged_environment(options.environment);
    std::vector<char *> argument_pointers = pointers(arguments);
    std::vector<char *> environment_pointers = pointers(environment);
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(null, 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        if (!options.directory.empty() && chdir(options.directory.c_str()) != 0) _exit(126);
        execvpe(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    ChildResult result;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout_s);
    pollfd streams[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
    int open_streams = 2;
    while (open_streams > 0) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
        if (left <= 0 || poll(streams, 2, static_cast<int>(left)) == 0) {
            result.timed_out = true;
            kill(-child, SIGKILL);
            break;
        }
        for (pollfd &stream : streams) {
            if (stream.fd < 0 || stream.revents == 0) continue;
            char buffer[65536];
            const ssize_t length = read(stream.fd, buffer, sizeof buffer);
            if (length > 0) {
                (&stream == &streams[0] ? result.out : result.err).append(buffer, static_cast<size_t>(length));
            } else {
                stream.fd = -1;
                --open_streams;
            }
        }
    }
    close(out[0]);
    close(err[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    return result;
}

std::string describe(const ChildResult &result) {
    std::ostringstream text;
    text << "exit " << result.exit_code << ", signal " << result.signal << (result.timed_out ? ", timed out" : "") << "\n--- stdout\n"
         << result.out << "--- stderr\n"
         << result.err;
    return text.str();
}

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "reprise-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + pattern);
    path_ = pattern;
    std::filesystem::permissions(path_, std::filesystem::perms(0755));
}
TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}
void write_text(const std::string &path, const std::string &text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
}
