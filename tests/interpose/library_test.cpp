// The built libreprise.so as a file: what it needs, imports and exports.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "child_process.h"
#include "paths.h"

namespace {

std::set<std::string> words_after(const std::string &text, const std::string &marker) {
    std::set<std::string> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t at = line.find(marker);
        if (at == std::string::npos) continue;
        const size_t open = line.find('[', at);
        found.insert(line.substr(open + 1, line.find(']') - open - 1));
    }
    return found;
}

// Names of dynamic symbols, versions cut off.
std::set<std::string> symbols(const char *which) {
    const ChildResult nm = run_child({kNm, "-D", "--format=posix", which, kPreload});
    EXPECT_EQ(nm.exit_code, 0) << describe(nm);
    std::set<std::string> found;
    std::istringstream lines(nm.out);
    for (std::string line; std::getline(lines, line);) found.insert(line.substr(0, line.find_first_of(" @")));
    return found;
}

TEST(Library, NeedsLibcAlone) {
    const ChildResult readelf = run_child({kReadelf, "-dW", kPreload});
    ASSERT_EQ(readelf.exit_code, 0) << describe(readelf);
    std::set<std::string> needed = words_after(readelf.out, "(NEEDED)");
    needed.erase("ld-linux-x86-64.so.2");
    needed.erase("ld-linux-aarch64.so.1");
    EXPECT_EQ(needed, std::set<std::string>{"libc.so.6"});
    EXPECT_EQ(words_after(readelf.out, "(SONAME)"), std::set<std::string>{"libreprise.so"});
    EXPECT_NE(readelf.out.find("NODELETE"), std::string::npos);
}

TEST(Library, ExportsTheHooksAndTheApiOnly) {
    const std::set<std::string> expected = {"malloc",
                                            "calloc",
                                            "realloc",
                                            "reallocarray",
                                            "free",
                                            "cfree",
                                            "posix_memalign",
                                            "aligned_alloc",
                                            "memalign",
                                            "valloc",
                                            "pvalloc",
                                            "malloc_usable_size",
                                            "mmap",
                                            "mmap64",
                                            "munmap",
                                            "mremap",
                                            "madvise",
                                            "mlockall",
                                            "munlockall",
                                            "reprise_segment_begin",
                                            "reprise_segment_end",
                                            "reprise_segment_abort",
                                            "reprise_release",
                                            "reprise_step",
                                            "reprise_track",
                                            "reprise_untrack",
                                            "reprise_scope",
                                            "reprise_state",
                                            "reprise_write_intent",
                                            "reprise_buffer_info",
                                            "reprise_stats",
                                            "reprise_last_error",
                                            "reprise_version",
                                            "reprise_adapter_table",
                                            "reprise_interposed",
                                            "reprise_attached"};
    EXPECT_EQ(symbols("--defined-only"), expected);
}

TEST(Library, ImportsNothingThatAHookMayNotUse) {
    const std::set<std::string> imported = symbols("--undefined-only");
    ASSERT_TRUE(imported.count("dlsym"));
    for (const std::string &name : imported) {
        EXPECT_NE(name.rfind("_Z", 0), 0u) << "C++ runtime: " << name;
        EXPECT_NE(name.rfind("__cxa_guard", 0), 0u) << name;
        EXPECT_NE(name.rfind("__cxa_thread", 0), 0u) << name;
        EXPECT_NE(name.rfind("_Unwind", 0), 0u) << name;
        EXPECT_EQ(name.find("printf"), std::string::npos) << "stdio: " << name;
    }
    // Thread-local set-up that allocates, locks that block for ever, stdio, and anything that would come back through our own hooks.
    for (const char *forbidden :
         {"__tls_get_addr", "__cxa_throw", "pthread_mutex_lock", "pthread_setspecific", "fopen", "fwrite", "puts", "strdup", "mmap",
          "munmap", "malloc", "free", "calloc", "realloc", "__gxx_personality_v0", "__stack_chk_fail_local"})
        EXPECT_FALSE(imported.count(forbidden)) << forbidden;
}

TEST(Library, ThreadLocalStorageIsStaticAndSmall) {
    const ChildResult readelf = run_child({kReadelf, "-ldW", kPreload});
    ASSERT_EQ(readelf.exit_code, 0);
    EXPECT_NE(readelf.out.find("STATIC_TLS"), std::string::npos);
    std::istringstream lines(readelf.out);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::string type, offset, virtual_address, physical_address, file_size, memory_size;
        fields >> type >> offset >> virtual_address >> physical_address >> file_size >> memory_size;
        if (type == "TLS") {
            EXPECT_LE(std::stoul(memory_size, nullptr, 16), 64u);
            return;
        }
    }
    FAIL() << readelf.out;
}

TEST(Library, HasOneConstructorAndNoIfunc) {
    const ChildResult dynamic = run_child({kReadelf, "-dW", kPreload});
    // frame_dummy of the compiler's start files, and ours.
    const size_t at = dynamic.out.find("(INIT_ARRAYSZ)");
    ASSERT_NE(at, std::string::npos);
    EXPECT_LE(std::stoi(dynamic.out.substr(at + 14)), 16);
    const ChildResult relocations = run_child({kReadelf, "-rsW", kPreload});
    EXPECT_EQ(relocations.out.find("IRELATIV"), std::string::npos);
    EXPECT_EQ(relocations.out.find("IFUNC"), std::string::npos);
}

}  // namespace
