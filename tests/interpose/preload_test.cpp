// Small programs under the preload: both worlds of blocks, threads, forks, early calls, other allocators, limits, raised privileges.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "child_process.h"
#include "paths.h"

namespace {

ChildOptions preloaded(std::map<std::string, std::string> more = {}) {
    ChildOptions options;
    options.environment = {{"LD_PRELOAD", kPreload}, {"REPRISE_ENGINE", kEngine}};
    for (auto &[name, value] : more) options.environment[name] = value;
    return options;
}
std::string program(const std::string &name) { return kPrograms + name; }

void expect_ok(const ChildResult &result) {
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out, "ok\n") << describe(result);
}

TEST(Preload, TensorsLiveInBothWorlds) { expect_ok(run_child({program("tensors")}, preloaded())); }
TEST(Preload, AnExecutableThatTakesTheAddressOfMallocIsNotAnotherAllocator) {
    expect_ok(run_child({program("fixed_address")}, preloaded()));
}
TEST(Preload, AnImporterIsTracked) { expect_ok(run_child({program("importer")}, preloaded())); }
TEST(Preload, AnImporterInCxxIsTracked) { expect_ok(run_child({program("importer_cxx")}, preloaded())); }
TEST(Preload, LinkedIsAsGoodAsPreloaded) {
    ChildOptions options;
    options.environment = {{"REPRISE_ENGINE", kEngine}};
    expect_ok(run_child({program("importer")}, options));
    expect_ok(run_child({program("importer_cxx")}, options));
    expect_ok(run_child({program("declared")}, options));
}
TEST(Preload, DeclaredRangesEndWithTheirMapping) { expect_ok(run_child({program("declared")}, preloaded())); }

TEST(Preload, AProgramWithoutTensorsSeesLibc) {
    const ChildResult result = run_child({program("plain"), kConstructorLibrary}, preloaded());
    expect_ok(result);
    EXPECT_EQ(result.err, "stub: at_exit\n");  // it asked the stub about its blocks, nothing else is said
}
TEST(Preload, CallsBeforeAnyConstructor) {
    expect_ok(run_child({program("early")}, preloaded()));
    expect_ok(run_child({program("early")}, preloaded({{"LD_PRELOAD", std::string(kPreload) + ":" + kConstructorLibrary}})));
    expect_ok(run_child({program("early")}, preloaded({{"LD_BIND_NOW", "1"}})));
}

TEST(Preload, ForksUnderLoad) {
    ChildOptions options = preloaded();
    options.timeout_s = 240;
    expect_ok(run_child({program("forks")}, options));
}

TEST(Preload, AnotherAllocatorBehindUs) {
    const auto options = preloaded({{"LD_PRELOAD", std::string(kPreload) + ":" + kOtherAllocator}});
    expect_ok(run_child({program("counted")}, options));
    expect_ok(run_child({program("tensors")}, options));
    expect_ok(run_child({program("importer")}, options));
}

TEST(Preload, AnotherAllocatorBeforeUsHidesTensorsAndIsNamed) {
    const auto options = preloaded({{"LD_PRELOAD", std::string(kOtherAllocator) + ":" + kPreload}});
    const ChildResult result = run_child({program("untracked"), kTensorLibrary, "none"}, options);
    expect_ok(result);
    EXPECT_NE(result.err.find("hides the allocations"), std::string::npos) << describe(result);
    EXPECT_NE(result.err.find("LD_PRELOAD=libreprise.so:" + std::string(kOtherAllocator)), std::string::npos) << describe(result);
    EXPECT_EQ(result.err.find("hides the allocations"), result.err.rfind("hides the allocations")) << "said once";
    const ChildResult declared = run_child({program("api")}, options);
    EXPECT_EQ(declared.exit_code, 0) << describe(declared);
    EXPECT_EQ(declared.out.substr(0, 12), "0 4242 1 | 0") << declared.out;
}

TEST(Preload, OpenedAtRunTimeIsExplicitMode) {
    ChildOptions options;
    options.environment = {{"REPRISE_ENGINE", kEngine}};
    expect_ok(run_child({program("local_open"), kPreload}, options));
}

struct TrackCase {
    const char *setting;
    const char *library;
    const char *origin;
};
TEST(Preload, TrackNamesTheTensorLibraries) {
    const TrackCase cases[] = {
        {nullptr, kTensorLibrary, "arena"},
        {nullptr, kCustomTensors, "none"},
        {"libcustomtensors.so*", kCustomTensors, "arena"},
        {"libcustomtensors.so*", kTensorLibrary, "none"},
        {"+libcustomtensors.so*", kTensorLibrary, "arena"},
        {"+libcustomtensors.so*", kCustomTensors, "arena"},
        {"liba.so,libcustomtensors.so.1", kCustomTensors, "arena"},
        {"liba.so::*custom*:libb.so", kCustomTensors, "arena"},
        {"", kTensorLibrary, "none"},
        {"libcustomtensors.so", kCustomTensors, "none"},
    };
    for (const TrackCase &c : cases) {
        auto options = preloaded();
        if (c.setting != nullptr) options.environment["REPRISE_TRACK"] = c.setting;
        SCOPED_TRACE(std::string(c.setting != nullptr ? c.setting : "(unset)") + " " + c.library);
        expect_ok(run_child({program("untracked"), c.library, c.origin}, options));
    }
    auto absolute = preloaded({{"REPRISE_TRACK", kCustomTensors}});
    expect_ok(run_child({program("untracked"), kCustomTensors, "arena"}, absolute));
    absolute.environment["REPRISE_TRACK"] = "/elsewhere/" + std::filesystem::path(kCustomTensors).filename().string();
    expect_ok(run_child({program("untracked"), kCustomTensors, "none"}, absolute));
}

TEST(Preload, Limits) {
    for (const char *limit : {"address-space", "descriptors"}) {
        SCOPED_TRACE(limit);
        expect_ok(run_child({program("limits"), limit}, preloaded()));
    }
}
TEST(Preload, LockedMemoryDoesNotPopulateArenas) {
    for (const char *when : {"mlockall", "mlockall-late"}) {
        SCOPED_TRACE(when);
        expect_ok(run_child({program("limits"), when}, preloaded()));
    }
}
TEST(Preload, UnderAnAddressSpaceLimitOfTheShell) {
    const ChildResult result = run_child({"sh", "-c", "ulimit -v 400000; exec \"$0\"", program("tensors")}, preloaded());
    // The program asks where its blocks are: with arenas of a few hundred MiB or none at all, it must at least not be killed.
    EXPECT_EQ(result.signal, 0) << describe(result);
    expect_ok(run_child({"sh", "-c", "ulimit -v 400000; exec \"$0\"", program("plain")}, preloaded()));
}

TEST(Preload, StaticProgramsAreLeftAlone) {
    const ChildResult with = run_child({program("static_plain")}, preloaded({{"REPRISE_LOG", "debug"}}));
    EXPECT_EQ(with.exit_code, 0);
    EXPECT_EQ(with.out + with.err, "static 1\n");
}

TEST(Preload, RaisedPrivilegesDisobeyTheEnvironment) {
    TemporaryFolder folder;
    struct statvfs file_system;
    ASSERT_EQ(statvfs(folder.path().c_str(), &file_system), 0);
    if (geteuid() != 0 || (file_system.f_flag & ST_NOSUID) != 0) GTEST_SKIP() << "needs root and a file system that honours the setuid bit";
    const std::string copy = folder / "secure";
    std::filesystem::copy_file(program("secure"), copy);
    std::filesystem::copy_file(kPreload, folder / "libreprise.so");
    ASSERT_EQ(run_child({"patchelf", "--set-rpath", folder.path(), copy}).exit_code, 0);
    ChildOptions options;
    options.environment = {{"REPRISE_ENGINE", kEngine}, {"REPRISE_LOG", "off"}};
    EXPECT_EQ(run_child({copy}, options).out, "secure 0 stub 1 owner 1\n");
    ASSERT_EQ(chown(copy.c_str(), 65534, 65534), 0);
    ASSERT_EQ(chmod(copy.c_str(), 04755), 0);
    const ChildResult raised = run_child({copy}, options);
    EXPECT_EQ(raised.exit_code, 0) << describe(raised);
    EXPECT_EQ(raised.out, "secure 1 stub 0 owner 0\n") << describe(raised);
}

}  // namespace
