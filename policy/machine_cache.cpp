#include "policy/machine_cache.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "kernels/kernels.h"
#include "policy/text_file.h"

namespace reprise {
namespace {

// Kernel and processor.
std::string digest_machine() {
    utsname system{};
    uname(&system);
    std::string text = std::string(system.release) + '\n' + system.version + '\n';
    std::ifstream cpu("/proc/cpuinfo");
    for (std::string line; std::getline(cpu, line);) {
        if (line.rfind("model name", 0) == 0 || line.rfind("CPU part", 0) == 0) {
            text += line + '\n';
            break;
        }
    }
    text += std::to_string(sysconf(_SC_NPROCESSORS_ONLN));
    char out[17];
    snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(kernels::digest(text.data(), text.size())));
    return out;
}

}  // namespace

std::string machine_file(const char *kind) {
    std::string folder;
    if (const char *cache = getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
        folder = cache;
    } else if (const char *home = getenv("HOME"); home != nullptr && *home == '/') {
        folder = std::string(home) + "/.cache";
    }
    static const std::string &digest = *new std::string(digest_machine());  // once: it is asked for with every plan
    return folder.empty() ? "" : folder + "/reprise/" + kind + '-' + digest;
}

void write_machine_file(const std::string &path, const std::string &text) {
    if (path.empty()) return;
    const std::string folder = path.substr(0, path.rfind('/'));
    mkdir(folder.substr(0, folder.rfind('/')).c_str(), 0755);
    mkdir(folder.c_str(), 0755);
    std::string why;  // it is made again, then
    (void)write_text_file(path, text, &why);
}

void prune_machine_files(const std::string &prefix, size_t most) {
    const std::filesystem::path begin(prefix);
    const std::string name = begin.filename();
    std::error_code error;
    std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> files;
    for (std::filesystem::directory_iterator at(begin.parent_path(), error), end; !error && at != end; at.increment(error)) {
        if (at->path().filename().string().rfind(name, 0) != 0) continue;
        std::error_code gone;  // by another process
        const auto time = at->last_write_time(gone);
        if (!gone) files.emplace_back(time, at->path());
    }
    if (files.size() <= most) return;
    std::sort(files.begin(), files.end());
    for (size_t i = 0; i + most < files.size(); ++i) {
        std::error_code ignored;
        std::filesystem::remove(files[i].second, ignored);
    }
}

}  // namespace reprise
