// The C API without a usable engine, REPRISE_REQUIRE, REPRISE_LOG, and what is said at the end of a process.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "child_process.h"
#include "paths.h"

namespace {

std::string program(const std::string &name) { return kPrograms + name; }

ChildResult run_api(const std::string &how, std::map<std::string, std::string> environment) {
    ChildOptions options;
    environment.emplace("LD_PRELOAD", kPreload);
    environment.emplace("REPRISE_ENGINE", kEngine);
    options.environment = environment;
    return run_child({program("api"), how}, options);
}

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }
size_t count(const std::string &text, const std::string &part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

TEST(Api, ForwardsToTheEngine) {
    const ChildResult result = run_api("return", {});
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out, "0 4242 1 | 1 | the stub's error\n0 0 1\n");
    EXPECT_EQ(result.err, "stub: at_exit\n");
}

struct Broken {
    const char *engine;
    const char *said;
};
TEST(Api, WithoutAnEngineTheJobRunsAndIsToldOnce) {
    for (const Broken &broken : {Broken{"/nonexistent/engine.so", "cannot be loaded"}, Broken{kOldEngine, "another version"},
                                 Broken{kRefusingEngine, "refused to start"}, Broken{kNoEngine, "does not export reprise_engine_open"},
                                 Broken{kTensorLibrary, "does not export reprise_engine_open"}}) {
        SCOPED_TRACE(broken.engine);
        const ChildResult result = run_api("return", {{"REPRISE_ENGINE", broken.engine}});
        EXPECT_EQ(result.exit_code, 0) << describe(result);
        EXPECT_EQ(result.out.substr(0, 12), "9 0 0 | 1 | ") << describe(result);
        EXPECT_TRUE(contains(result.out, broken.said)) << describe(result);
        EXPECT_TRUE(contains(result.out, "9 9 0\n")) << describe(result);
        EXPECT_EQ(count(result.err, broken.said), 1u) << describe(result);
        EXPECT_TRUE(contains(result.err, "nothing was attached in api")) << describe(result);
    }
}

TEST(Api, MissingEngineFileIsNamedWithTheRemedy) {
    TemporaryFolder folder;
    ASSERT_EQ(run_child({"cp", kPreload, folder.path()}).exit_code, 0);
    ChildOptions options;
    options.environment = {{"LD_PRELOAD", folder / "libreprise.so"}};
    const ChildResult result = run_child({program("api")}, options);
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_TRUE(contains(result.err, "libreprise_engine.so is neither beside libreprise.so nor in reprise/ below it")) << describe(result);
    // Put there, it is found, in both places.
    for (const char *place : {"libreprise_engine.so", "reprise/libreprise_engine.so"}) {
        write_text(folder / place, read_text(kEngine));
        EXPECT_EQ(run_child({program("api")}, options).out.substr(0, 6), "0 4242") << place;
        ASSERT_EQ(run_child({"rm", folder / place}).exit_code, 0);
    }
}

TEST(Api, ARelativePreloadIsFoundAfterTheJobHasMoved) {
    TemporaryFolder folder;
    ASSERT_EQ(run_child({"cp", kPreload, folder.path()}).exit_code, 0);
    write_text(folder / "libreprise_engine.so", read_text(kEngine));
    ChildOptions options;
    options.directory = folder.path();
    options.environment = {{"LD_PRELOAD", "./libreprise.so"}};
    EXPECT_EQ(run_child({program("api")}, options).out.substr(0, 6), "0 4242");
}

TEST(Exit, TheEngineIsToldOfAnOrderlyEndOnly) {
    const ChildResult returned = run_api("fail", {});
    EXPECT_EQ(returned.exit_code, 5);
    EXPECT_EQ(returned.err, "stub: at_exit\n");
    for (const char *how : {"_exit", "quick_exit"}) {
        const ChildResult result = run_api(how, {});
        EXPECT_EQ(result.exit_code, 5) << describe(result);
        EXPECT_EQ(result.err, "") << how;
    }
    const ChildResult killed = run_api("kill", {});
    EXPECT_EQ(killed.signal, SIGABRT);
    EXPECT_EQ(killed.err, "");
}

TEST(Exit, NothingAttachedIsSaidByTheTopProcessAlone) {
    const ChildResult top = run_api("idle", {});
    EXPECT_EQ(top.exit_code, 0);
    EXPECT_EQ(count(top.err, "reprise: nothing was attached in api (process "), 1u) << describe(top);
    EXPECT_EQ(run_api("idle", {{"REPRISE_OWNER_PID", "1"}}).err, "");
    EXPECT_EQ(run_api("idle", {{"REPRISE_LOG", "error"}}).err, "");
    EXPECT_EQ(run_api("idle", {{"REPRISE_LOG", "off"}}).err, "");
    ChildOptions options;
    options.environment = {{"LD_PRELOAD", kPreload}};
    EXPECT_EQ(run_child({"true"}, options).err, "");
    options.environment["REPRISE_LOG"] = "info";
    EXPECT_EQ(count(run_child({"true"}, options).err, "nothing was attached in true"), 1u);
    options.environment["REPRISE_LOG"] = "loud";
    EXPECT_EQ(count(run_child({"true"}, options).err, "REPRISE_LOG=loud is none of"), 0u) << "a program that says nothing reads no level";
    EXPECT_EQ(count(run_api("idle", {{"REPRISE_LOG", "loud"}}).err, "REPRISE_LOG=loud is none of"), 1u);
}

TEST(Require, NothingAttachedIsAnError) {
    const ChildResult idle = run_api("idle", {{"REPRISE_REQUIRE", "1"}});
    EXPECT_EQ(idle.exit_code, 1) << describe(idle);
    EXPECT_TRUE(contains(idle.err, "REPRISE_REQUIRE is set, so this is an error")) << describe(idle);
    EXPECT_EQ(run_api("idle", {{"REPRISE_REQUIRE", "1"}, {"REPRISE_LOG", "off"}}).exit_code, 1);
    EXPECT_EQ(run_api("idle", {{"REPRISE_REQUIRE", "0"}}).exit_code, 0);
    EXPECT_EQ(run_api("return", {{"REPRISE_REQUIRE", "1"}}).exit_code, 0);
    EXPECT_EQ(run_api("return", {{"REPRISE_REQUIRE", "1"}, {"REPRISE_ENGINE", kOldEngine}}).exit_code, 1);
    EXPECT_EQ(run_api("fail", {{"REPRISE_REQUIRE", "1"}, {"REPRISE_ENGINE", kOldEngine}}).exit_code, 5) << "the job's own error stays";
    ChildOptions options;
    options.environment = {{"LD_PRELOAD", kPreload}, {"REPRISE_REQUIRE", "1"}};
    EXPECT_EQ(run_child({"/bin/true"}, options).exit_code, 1);
    const ChildResult output = run_child({"/bin/echo", "kept"}, options);
    EXPECT_EQ(output.exit_code, 1);
    EXPECT_EQ(output.out, "kept\n") << "stdio is flushed";
}

TEST(Require, IsSatisfiedByAProcessBelow) {
    ChildOptions options;
    options.environment = {{"LD_PRELOAD", kPreload}, {"REPRISE_REQUIRE", "1"}, {"REPRISE_ENGINE", kEngine}};
    // env and python both stay above the process that attaches; a child that fails to attach changes nothing for the better.
    const std::string spawn = "import subprocess, sys; sys.exit(subprocess.run([sys.argv[1]] + sys.argv[2:]).returncode)";
    const ChildResult attached = run_child({kPython, "-c", spawn, program("api")}, options);
    EXPECT_EQ(attached.exit_code, 0) << describe(attached);
    EXPECT_EQ(count(attached.err, "nothing was attached"), 0u) << describe(attached);
    const ChildResult idle = run_child({kPython, "-c", spawn, program("api"), "idle"}, options);
    EXPECT_EQ(idle.exit_code, 1) << describe(idle);
    EXPECT_EQ(count(idle.err, "nothing was attached"), 1u) << describe(idle);
}

}  // namespace
