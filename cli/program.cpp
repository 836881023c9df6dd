#include "cli/program.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "cli/text.h"

namespace reprise::cli {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_NONE;
#endif

bool is_regular(const std::string &path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// As execvp looks: the first file on PATH that may be executed; one that may not is remembered.
std::string on_path(const std::string &name, std::string *refused) {
    const char *variable = getenv("PATH");
    std::stringstream list(variable != nullptr ? variable : "/bin:/usr/bin");
    for (std::string folder; std::getline(list, folder, ':');) {
        const std::string path = (folder.empty() ? "." : folder) + "/" + name;
        if (!is_regular(path)) continue;
        if (access(path.c_str(), X_OK) == 0) return path;
        if (refused->empty()) *refused = path;
    }
    return "";
}

// Why glibc would run this file in secure mode, where LD_PRELOAD is ignored; "" when it would not.
std::string secure_reason(const std::string &path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return "";
    if ((status.st_mode & S_ISUID) != 0 && status.st_uid != getuid()) return "is set-user-id";
    if ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 && status.st_gid != getgid()) return "is set-group-id";
    if (getuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) return "has file capabilities";
    return "";
}

std::string elf_reason(std::ifstream &file) {
    Elf64_Ehdr header{};
    file.seekg(0);
    if (!file.read(reinterpret_cast<char *>(&header), sizeof header)) return "is shorter than an ELF header";
    if (header.e_ident[EI_CLASS] != ELFCLASS64) return "is a 32-bit program";
    if (kMachine != EM_NONE && header.e_machine != kMachine) return "is built for another kind of processor";
    std::string interpreter;
    bool dynamic = false;
    for (uint16_t i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr part{};
        file.seekg(static_cast<std::streamoff>(header.e_phoff + uint64_t{i} * header.e_phentsize));
        if (!file.read(reinterpret_cast<char *>(&part), sizeof part)) return "has a damaged ELF header";
        dynamic = dynamic || part.p_type == PT_DYNAMIC;
        if (part.p_type != PT_INTERP || part.p_filesz > 4096) continue;
        interpreter.resize(part.p_filesz);
        file.seekg(static_cast<std::streamoff>(part.p_offset));
        file.read(interpreter.data(), static_cast<std::streamsize>(part.p_filesz));
    }
    if (interpreter.empty()) return dynamic ? "is linked statically (static-pie)" : "is linked statically";
    if (interpreter.find("musl") != std::string::npos) return "uses musl's libc, and the preload is built for glibc's";
    return "";
}

void look(Program &program, const std::string &path, int depth) {
    const std::string name = "'" + printable(path) + "' ";
    const auto warn = [&](const std::string &reason) {
        if (!reason.empty()) program.warnings.push_back(name + reason + ": the preload will not be loaded into it");
    };
    std::ifstream file(path, std::ios::binary);
    char magic[4] = {};
    if (!file.read(magic, 2)) {
        warn(secure_reason(path));
        return;  // executable but not readable: nothing can be said
    }
    if (memcmp(magic, "#!", 2) == 0) {
        // The kernel ignores a script's set-user-id bit.
        std::string line;
        std::getline(file, line);
        std::stringstream words(line.substr(0, 255));
        std::string interpreter, argument;
        words >> interpreter >> argument;
        if (argument == "-S") words >> argument;
        if (interpreter.empty() || !is_regular(interpreter) || access(interpreter.c_str(), X_OK) != 0) {
            program.failure = kNotExecutable;
            program.problem = name + "names the interpreter '" + printable(interpreter) + "' in its first line, which " +
                              (interpreter.empty() || access(interpreter.c_str(), F_OK) != 0 ? "does not exist" : "cannot be executed") +
                              ": install it, or mend that line";
            return;
        }
        if (depth >= 4) return;
        const bool env = interpreter.size() >= 4 && interpreter.compare(interpreter.size() - 4, 4, "/env") == 0;
        std::string refused;
        const std::string real = env ? on_path(argument, &refused) : interpreter;
        if (!real.empty()) look(program, real, depth + 1);
        return;
    }
    warn(secure_reason(path));
    file.read(magic + 2, 2);
    if (memcmp(magic, ELFMAG, SELFMAG) == 0) warn(elf_reason(file));
}

}  // namespace

Program find_program(const std::string &name) {
    Program program;
    const std::string quoted = "'" + printable(name) + "'";
    if (name.empty()) {
        program.failure = kNotFound;
        program.problem = "the command is an empty word";
    } else if (name.find('/') == std::string::npos) {
        std::string refused;
        program.path = on_path(name, &refused);
        if (program.path.empty() && !refused.empty()) {
            program.failure = kNotExecutable;
            program.problem = quoted + " is on PATH as " + printable(refused) +
                              ", which may not be executed: chmod +x it, or name its interpreter before it";
        } else if (program.path.empty()) {
            program.failure = kNotFound;
            program.problem = quoted + " is not found on PATH: install it, or give its path" +
                              (is_regular(name) ? " (./" + printable(name) + " is in this folder)" : "");
        }
    } else {
        struct stat status {};
        program.path = name;
        if (stat(name.c_str(), &status) != 0) {
            program.failure = errno == ENOENT || errno == ENOTDIR ? kNotFound : kNotExecutable;
            program.problem = quoted + " cannot be run: " + strerror(errno);
        } else if (S_ISDIR(status.st_mode)) {
            program.failure = kNotExecutable;
            program.problem = quoted + " is a folder: name a program in it";
        } else if (!S_ISREG(status.st_mode) || access(name.c_str(), X_OK) != 0) {
            program.failure = kNotExecutable;
            program.problem =
                quoted + " may not be executed: chmod +x it, or name its interpreter before it (python3 " + printable(name) + ")";
        }
    }
    if (program.failure == 0) look(program, program.path, 0);
    return program;
}

}  // namespace reprise::cli
