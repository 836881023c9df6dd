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
        // As the real one: loaded under another name when a framework is imported, or run by site from PYTHONPATH.
        write_text(folder_ / "python/attach/sitecustomize.py",
                   "import os, sys\n"
                   "folder = os.path.dirname(__file__)\n"
                   "class Early:\n"
                   "    def find_spec(self, name, path=None, target=None):\n"
                   "        if name != 'torch': return None\n"
                   "        sys.meta_path.remove(self)\n"
                   "        sys.path.insert(0, os.path.dirname(folder))\n"
                   "        import reprise.attach\n"
                   "        sys.path.pop(0)\n"
                   "        reprise.attach.attach(__name__)\n"
                   "if __name__ == 'sitecustomize':\n"
                   "    sys.path.remove(folder)\n"
                   "    rest = [p for p in os.environ['PYTHONPATH'].split(':') if p != folder]\n"
                   "    os.environ['PYTHONPATH'] = ':'.join(rest)\n"
                   "    sys.meta_path.insert(0, Early())\n");
        write_text(folder_ / "torch.py", "ready = True\n");
        write_text(folder_ / "python/reprise/__init__.py", "");
        write_text(folder_ / "python/reprise/attach.py",
                   "import ctypes, sys\n"
                   "def attach(how='pending'):\n"
                   "    print('attached by', how)\n"
                   "    ctypes.CDLL(None).reprise_attached(2)\n");
        options_.environment = {{"LD_PRELOAD", folder_ / "libreprise.so"}, {"PYTHONDONTWRITEBYTECODE", "1"}};
    }
    // A program that imports the framework, wherever its path comes from.
    std::string import_script() const {
        return "import sys; sys.path.insert(0, '" + folder_.path() + "')\nimport torch; print(torch.ready)\n";
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

TEST_F(Python, TheImportOfAFrameworkAttaches) {
    for (const char *flag : {"-s", "-I", "-E"}) {
        const ChildResult result = run_child({kPython, flag, "-c", import_script()}, options_);
        EXPECT_EQ(result.exit_code, 0) << flag << describe(result);
        EXPECT_EQ(result.out, "attached by _reprise_early\nTrue\n") << flag << describe(result);
        EXPECT_EQ(result.err, "") << flag << describe(result);
    }
}

TEST_F(Python, WhereTheInterpreterTakesNoModuleOfOursThePathAttaches) {
    options_.environment["REPRISE_ATTACH"] = "path";
    for (const char *path : {"", "/somewhere:/else"}) {
        options_.environment["PYTHONPATH"] = path;
        const ChildResult result =
            run_child({kPython, "-c", import_script() + "import os; print([os.environ.get('PYTHONPATH')])"}, options_);
        EXPECT_EQ(result.out, "attached by sitecustomize\nTrue\n['" + std::string(path) + "']\n") << describe(result);
        EXPECT_EQ(result.err, "") << describe(result);
    }
}

TEST_F(Python, NothingOfTheEnvironmentAndThePathChanges) {
    const std::string script = "import os, sys; print(os.environ.get('PYTHONPATH'), [p for p in sys.path if 'attach' in p])";
    EXPECT_EQ(run_child({kPython, "-c", script}, options_).out.find("None []\n"), 0u);
    options_.environment["PYTHONPATH"] = "/somewhere:/else";
    EXPECT_EQ(run_child({kPython, "-c", script}, options_).out.find("/somewhere:/else []\n"), 0u);
}

// The finder that sleeps, by what sys.meta_path holds.
TEST_F(Python, PolicyOffAddsNothing) {
    const std::string script = "import sys; print(len([f for f in sys.meta_path if 'reprise' in repr(f)]))";
    EXPECT_EQ(run_child({kPython, "-c", script}, options_).out, "1\n");
    options_.environment["REPRISE_POLICY"] = "off";
    EXPECT_EQ(run_child({kPython, "-c", script}, options_).out, "0\n");
}

TEST_F(Python, TheUsersSitecustomizeIsTheOneThatPythonGets) {
    write_text(folder_ / "own/sitecustomize.py", "import sys\nvalue = sys.modules['sitecustomize'].__file__\n");
    options_.environment["PYTHONPATH"] = folder_ / "own";
    const std::string again = "del sys.modules['sitecustomize']\nimport sitecustomize\nprint(sitecustomize.value)\n";
    ChildResult result =
        run_child({kPython, "-c", "import sys, sitecustomize\nprint(sitecustomize.value)\n" + again + import_script()}, options_);
    const std::string line = folder_ / "own/sitecustomize.py\n";
    EXPECT_EQ(result.out, line + line + "attached by _reprise_early\nTrue\n") << describe(result);
    EXPECT_EQ(result.err, "") << describe(result);

    // Its errors are the user's, as without us.
    write_text(folder_ / "own/sitecustomize.py", "raise ValueError('mine')\n");
    result = run_child({kPython, "-c", import_script()}, options_);
    ChildOptions stock = options_;
    stock.environment.erase("LD_PRELOAD");
    const ChildResult without = run_child({kPython, "-c", "pass"}, stock);
    EXPECT_EQ(result.out, "attached by _reprise_early\nTrue\n") << describe(result);
    EXPECT_NE(without.err.find("ValueError: mine"), std::string::npos) << describe(without);
    EXPECT_EQ(result.err, without.err);
}

TEST_F(Python, WithoutASitecustomizeOfTheUsersThereIsNone) {
    const std::string script =  // Debian has one for everybody: off the path with it
        "import sys\n"
        "sys.path[:] = []\n"
        "sys.modules.pop('sitecustomize', None)\n"
        "try:\n"
        "    import sitecustomize\n"
        "except ModuleNotFoundError as error: print(error, error.name, 'sitecustomize' in sys.modules)\n";
    EXPECT_EQ(run_child({kPython, "-c", script}, options_).out.find("No module named 'sitecustomize' sitecustomize False\n"), 0u);
}

TEST_F(Python, WherePythonImportsNoSiteTheFirstTensorAttaches) {
    for (const char *flag : {"-S", "-IS"}) {
        const ChildResult result = run_child({kPython, flag, "-c", tensor_script()}, options_);
        EXPECT_EQ(result.exit_code, 0) << flag << describe(result);
        EXPECT_EQ(result.out, "attached by pending\n[] []\n") << flag << describe(result);
        EXPECT_EQ(result.err, "") << flag << describe(result);
    }
}

// A framework that imports nothing that we know, or an allocation before it.
TEST_F(Python, TheFirstTensorAttachesWhereNothingWasImported) {
    const ChildResult result = run_child({kPython, "-c", tensor_script()}, options_);
    EXPECT_EQ(result.out, "attached by pending\n[] []\n") << describe(result);
    EXPECT_EQ(result.err, "") << describe(result);
}

TEST_F(Python, AnAttachFolderThatFailsDoesNotBecomeTheJobsError) {
    write_text(folder_ / "python/attach/sitecustomize.py", "raise RuntimeError('broken')\n");
    const ChildResult result = run_child({kPython, "-c", import_script()}, options_);
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out, "True\n") << describe(result);
    EXPECT_EQ(result.err.find("reprise: cannot attach to this Python: RuntimeError: broken; the job runs as without Reprise\n"), 0u)
        << describe(result);
}

TEST_F(Python, AnAdapterThatFailsDoesNotBecomeTheJobsError) {
    write_text(folder_ / "python/reprise/attach.py", "raise RuntimeError('broken')\n");
    const ChildResult result = run_child({kPython, "-S", "-c", tensor_script()}, options_);
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out, "[] []\n") << describe(result);
    EXPECT_NE(result.err.find("reprise: cannot attach to this Python: RuntimeError: broken; the job runs as without Reprise\n"),
              std::string::npos)
        << describe(result);
}

TEST_F(Python, ForkedAndSpawnedChildrenAttachToo) {
    const std::string script =
        "import multiprocessing as m\n"
        "def work():\n"
        "    import sys; sys.path.insert(0, '" +
        folder_.path() +
        "'); import torch; sys.stdout.flush()\n"
        "if __name__ == '__main__':\n"
        "    for how in ('fork', 'spawn'):\n"
        "        p = m.get_context(how).Process(target=work); p.start(); p.join(); print(how, p.exitcode, flush=True)\n";
    write_text(folder_ / "job.py", script);
    const ChildResult result = run_child({kPython, folder_ / "job.py"}, options_);
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out, "attached by _reprise_early\nfork 0\nattached by _reprise_early\nspawn 0\n") << describe(result);
}

// An interpreter within the interpreter: with the lock of the first one, or (from 3.12 on) one of its own.
TEST_F(Python, SubinterpretersAreAttachedToo) {
    const std::string script =
        "import sys\n"
        "try: import _interpreters as x\n"
        "except ImportError: import _xxsubinterpreters as x\n"
        "try: x.run_string(x.create(), \"\"\"" +
        import_script() + "\"\"\")\n" + "except AttributeError: x.exec(x.create(), \"\"\"" + import_script() + "\"\"\")\n";
    const ChildResult result = run_child({kPython, "-c", script}, options_);
    EXPECT_EQ(result.out.find("attached by _reprise_early\nTrue\n"), 0u) << describe(result);
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
