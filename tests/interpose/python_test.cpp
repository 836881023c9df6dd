// Attachment to a Python interpreter, with an adapter that only says that it was called.
#include <gtest/gtest.h>

#include <string>

#include "child_process.h"
#include "paths.h"

namespace {

class Python : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(run_child({"cp", kPreload, kTensorLibrary, folder_.path()}).exit_code, 0);
        write_text(folder_ / "python/attach/sitecustomize.py",
                   "import os, sys\n"
                   "folder = os.path.dirname(__file__)\n"
                   "sys.path.remove(folder)\n"
                   "rest = [p for p in os.environ['PYTHONPATH'].split(':') if p != folder]\n"
                   "os.environ['PYTHONPATH'] = ':'.join(rest)\n"
                   "sys.path.insert(0, os.path.dirname(folder))\n"
                   "import reprise.attach\n"
                   "reprise.attach.attach('sitecustomize')\n"
                   "sys.path.pop(0)\n");
        write_text(folder_ / "python/reprise/__init__.py", "");
        write_text(folder_ / "python/reprise/attach.py",
                   "import ctypes, sys\n"
                   "def attach(how='pending'):\n"
                   "    print('attached by', how)\n"
                   "    ctypes.CDLL(None).reprise_attached(2)\n");
        options_.environment = {{"LD_PRELOAD", folder_ / "libreprise.so"}, {"PYTHONDONTWRITEBYTECODE", "1"}};
    }
    std::string tensor_script() {
        return "import ctypes, sys\n"
               "library = ctypes.CDLL('" +
               folder_ / "libc10.so" +
               "')\n"
               "library.tensor_posix_memalign.restype = ctypes.c_void_p\n"
               "for i in range(1000): library.tensor_posix_memalign(ctypes.c_size_t(64), ctypes.c_size_t(1000))\n"
               "print([p for p in sys.path if 'python/attach' in p or p.endswith('/python')], sorted(n for n in globals() if n == "
               "'folder'))\n";
    }

    TemporaryFolder folder_;
    ChildOptions options_;
};

TEST_F(Python, SitecustomizeAttaches) {
    const ChildResult result = run_child({kPython, "-c", tensor_script()}, options_);
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out, "attached by sitecustomize\n[] []\n") << describe(result);
    EXPECT_EQ(result.err, "") << describe(result);
}

TEST_F(Python, PythonpathOfTheUserIsKept) {
    options_.environment["PYTHONPATH"] = "/somewhere:/else";
    const ChildResult result = run_child({kPython, "-c", "import os; print(os.environ['PYTHONPATH'])"}, options_);
    EXPECT_EQ(result.out, "attached by sitecustomize\n/somewhere:/else\n") << describe(result);
}

TEST_F(Python, WherePythonIgnoresTheEnvironmentTheFirstTensorAttaches) {
    for (const char *flag : {"-I", "-E", "-S", "-IS"}) {
        const ChildResult result = run_child({kPython, flag, "-c", tensor_script()}, options_);
        EXPECT_EQ(result.exit_code, 0) << flag << describe(result);
        EXPECT_EQ(result.out, "attached by pending\n[] []\n") << flag << describe(result);
        EXPECT_EQ(result.err, "") << flag << describe(result);
    }
}

TEST_F(Python, AnAdapterThatFailsDoesNotBecomeTheJobsError) {
    write_text(folder_ / "python/reprise/attach.py", "raise RuntimeError('broken')\n");
    const ChildResult result = run_child({kPython, "-I", "-c", tensor_script()}, options_);
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out, "[] []\n") << describe(result);
    EXPECT_NE(result.err.find("reprise: cannot attach to this Python: RuntimeError: broken; the job runs as without Reprise\n"),
              std::string::npos)
        << describe(result);
}

TEST_F(Python, ForkedAndSpawnedChildrenAttachToo) {
    const std::string script =
        "import multiprocessing as m, sys\n"
        "def work(): import sys; sys.stdout.flush()\n"
        "if __name__ == '__main__':\n"
        "    for how in ('fork', 'spawn'):\n"
        "        p = m.get_context(how).Process(target=work); p.start(); p.join(); print(how, p.exitcode, flush=True)\n";
    write_text(folder_ / "job.py", script);
    const ChildResult result = run_child({kPython, folder_ / "job.py"}, options_);
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out.find("attached by sitecustomize\nfork 0\n"), 0u) << describe(result);
    EXPECT_NE(result.out.find("spawn 0\n"), std::string::npos) << describe(result);
    EXPECT_NE(result.out.rfind("attached by sitecustomize"), 0u) << "the spawned interpreter attached as well\n" << describe(result);
    EXPECT_EQ(result.err, "") << describe(result);
}

TEST_F(Python, OtherProgramsGetNoPythonpath) {
    EXPECT_EQ(run_child({"sh", "-c", "echo \"[$PYTHONPATH][$REPRISE_OWNER_PID]\""}, options_).out, "[][]\n");
}

TEST_F(Python, WithoutTheAdapterOneLineSaysThatNothingWasAttached) {
    ASSERT_EQ(run_child({"rm", "-r", folder_ / "python"}).exit_code, 0);
    const ChildResult result = run_child({kPython, "-c", "print(1)"}, options_);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "1\n");
    EXPECT_EQ(result.err.find("reprise: nothing was attached in python"), 0u) << describe(result);
    options_.environment["REPRISE_REQUIRE"] = "1";
    EXPECT_EQ(run_child({kPython, "-c", "print(1)"}, options_).exit_code, 1);
}

}  // namespace
