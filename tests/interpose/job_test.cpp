// A whole job under the preload with the real engine, where things go wrong: a container's system call filter, kill -9 while recording, a
// disk that is full.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "child_process.h"
#include "paths.h"

namespace {

std::string program(const std::string &name) { return kPrograms + name; }

ChildOptions preloaded(std::map<std::string, std::string> more = {}) {
    ChildOptions options;
    options.environment = std::move(more);
    options.environment["LD_PRELOAD"] = kPreload;
    options.environment["REPRISE_ENGINE"] = kRealEngine;
    options.environment["REPRISE_REQUIRE"] = "1";
    return options;
}

std::string retained(const char *steps) {
    const ChildResult result = run_child({program("job"), steps, "retained"});
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    return result.out;
}

std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

// What docs/formats.md tells a reader to do: a line that is not whole is skipped.
struct Records {
    std::map<std::string, std::vector<nlohmann::json>> runs;  // records of replays, in the order of the file
    size_t contracts = 0, torn = 0;
};
Records read_records(const std::string &path) {
    Records records;
    for (const std::string &line : lines_of(read_text(path))) {
        const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
        if (json.is_discarded()) {
            ++records.torn;
        } else if (json["schema"] == "reprise.contract/1") {
            ++records.contracts;
        } else {
            EXPECT_EQ(json["schema"], "reprise.record/1") << line;
            EXPECT_EQ(json["outcome"], "match") << line;
            records.runs[json["run"]].push_back(json);
        }
    }
    return records;
}
// Every replay of a run up to its last: none is missing in the middle. The job replays the newest of four instances first.
void expect_unbroken(const std::vector<nlohmann::json> &run) {
    for (size_t i = 0; i < run.size(); ++i) {
        EXPECT_EQ(run[i]["instance"].get<size_t>(), i / 4 * 4 + 4 - i % 4) << i;
        EXPECT_EQ(run[i]["step"].get<size_t>(), i / 4) << i;
    }
}

TEST(Job, IsRightOnlyWithUs) {
    const std::string expected = retained("10");
    for (const char *policy : {"selective", "whole"}) {
        const ChildResult result = run_child({program("job"), "10"}, preloaded({{"REPRISE_POLICY", policy}}));
        EXPECT_EQ(result.exit_code, 0) << describe(result);
        EXPECT_EQ(result.out, expected) << describe(result);
    }
    const ChildResult off = run_child({program("job"), "10"}, preloaded({{"REPRISE_POLICY", "off"}}));
    EXPECT_EQ(off.exit_code, 0) << describe(off);
    EXPECT_NE(off.out, expected) << "computed again on changed state: this job must come out wrong without us";
}

TEST(Job, WhereSeccompForbidsUserfaultfd) {
    const std::string expected = retained("10");
    for (const char *policy : {"selective", "whole"}) {
        const ChildResult result =
            run_child({program("without_userfaultfd"), program("job"), "10"}, preloaded({{"REPRISE_POLICY", policy}}));
        EXPECT_EQ(result.exit_code, 0) << describe(result);
        EXPECT_EQ(result.out, expected) << describe(result);
        const std::vector<std::string> said = lines_of(result.err);
        ASSERT_EQ(said.size(), 2u) << "the reason, and the line at exit\n" << describe(result);
        for (const char *part : {"reprise: ", "page writes cannot be tracked here", "userfaultfd", "seccomp", "compared instead"})
            EXPECT_NE(said[0].find(part), std::string::npos) << said[0];
        EXPECT_NE(said[1].find(", compare)"), std::string::npos) << said[1];
    }
}

TEST(Job, WhatHappensToMemoryInAWindow) {
    for (const char *what : {"remap", "realloc", "fork", "thread", "close"}) {
        for (const char *policy : {"selective", "whole"}) {
            for (const char *source : {"wp-async", "compare"}) {
                SCOPED_TRACE(std::string(what) + " " + policy + " " + source);
                const ChildResult result =
                    run_child({program("window"), what}, preloaded({{"REPRISE_POLICY", policy}, {"REPRISE_DIRTY", source}}));
                EXPECT_EQ(result.exit_code, 0) << describe(result);
                EXPECT_EQ(result.out, "ok\n") << describe(result);
            }
        }
    }
}

// Killed at any moment, again and again into the same file: what was written stays readable, up to the last whole record.
TEST(Job, KilledWhileRecording) {
    TemporaryFolder folder;
    const std::string path = folder / "records";
    const std::string log = folder / "log";
    constexpr size_t kRuns = 6;
    for (size_t run = 0; run < kRuns; ++run) {
        const off_t before = [&] {
            struct stat status {};
            return stat(path.c_str(), &status) == 0 ? status.st_size : 0;
        }();
        const pid_t child = fork();
        if (child == 0) {
            const int null = open("/dev/null", O_RDWR);
            dup2(null, 1);
            dup2(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
            setenv("LD_PRELOAD", kPreload, 1);
            setenv("REPRISE_ENGINE", kRealEngine, 1);
            setenv("REPRISE_RECORDS", path.c_str(), 1);
            execl(program("job").c_str(), "job", "100000000", nullptr);
            _exit(127);
        }
        // Once it records, a little longer in each run: not always at the same place of a step.
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        struct stat status {};
        while (stat(path.c_str(), &status) != 0 || status.st_size < before + 8000) {
            ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "it does not record\n" << read_text(log);
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(137 * run));
        kill(child, SIGKILL);
        int how = 0;
        waitpid(child, &how, 0);
        ASSERT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) << how;
        if (run % 2 == 0) {  // the worst that can happen to its last line
            const std::string text = read_text(path);
            ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(text.size() - 1 - run)), 0);
        }
    }
    const ChildResult last = run_child({program("job"), "5"}, preloaded({{"REPRISE_RECORDS", path}}));
    EXPECT_EQ(last.exit_code, 0) << describe(last);
    EXPECT_EQ(last.out, retained("5"));
    const Records records = read_records(path);
    EXPECT_LE(records.torn, kRuns);
    EXPECT_GE(records.torn, 1u) << "this test cuts lines, and found none that was";
    EXPECT_GE(records.contracts, kRuns + 1);
    EXPECT_EQ(records.runs.size(), kRuns + 1);
    size_t whole = 0;
    for (const auto &[name, run] : records.runs) {
        EXPECT_GE(run.size(), 8u) << name;
        expect_unbroken(run);
        whole += run.size() == 20;
    }
    EXPECT_GE(whole, 1u) << "the run that was not killed is complete";
}

// A file that may not grow further stands for a full disk: the write is cut in the middle of a line.
TEST(Job, TheDiskIsFullWhileRecording) {
    TemporaryFolder folder;
    const std::string path = folder / "records";
    const std::string expected = retained("50");
    for (const char *blocks : {"1", "5", "8"}) {  // of 1 KiB
        unlink(path.c_str());
        const std::string script = std::string("ulimit -f ") + blocks + "; exec \"$0\" 50";
        const ChildResult result = run_child({"bash", "-c", script, program("job")}, preloaded({{"REPRISE_RECORDS", path}}));
        EXPECT_EQ(result.exit_code, 0) << "the job goes on\n" << describe(result);
        EXPECT_EQ(result.out, expected) << describe(result);
        size_t said = 0;
        for (const std::string &line : lines_of(result.err)) {
            if (line.find("record file") == std::string::npos) continue;
            ++said;
            for (const std::string &part : {path, std::string("REPRISE_RECORDS"), std::string("the job goes on")})
                EXPECT_NE(line.find(part), std::string::npos) << line;
        }
        EXPECT_EQ(said, 1u) << describe(result);
        const Records cut = read_records(path);
        EXPECT_EQ(cut.torn, 0u) << "a line that did not fit is taken back";
        for (const auto &[name, run] : cut.runs) expect_unbroken(run);
    }
    // With room again, the same file goes on.
    const ChildResult again = run_child({program("job"), "5"}, preloaded({{"REPRISE_RECORDS", path}}));
    EXPECT_EQ(again.exit_code, 0) << describe(again);
    const Records records = read_records(path);
    EXPECT_EQ(records.torn, 0u);
    ASSERT_EQ(records.runs.size(), 2u);
    EXPECT_EQ(records.runs.rbegin()->second.size(), 20u);
}

TEST(Job, RecordsIntoADeviceThatIsFull) {
    const ChildResult result = run_child({program("job"), "5"}, preloaded({{"REPRISE_RECORDS", "/dev/full"}}));
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out, retained("5"));
    EXPECT_NE(result.err.find("'/dev/full' cannot be written"), std::string::npos) << describe(result);
}

}  // namespace
