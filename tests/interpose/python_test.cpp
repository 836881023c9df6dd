// Attachment to a Python interpreter, with an adapter that only says that it was called.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "child_process.h"
#include "paths.h"

namespace {

class Python : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(run_child({"cp", kPreload, kTensorLibrary, folder_.path()}).exit_code, 0);
        write_text(folder_ / "torch.py", "ready = True\n");
        // The real file, before an adapter that only tells who has called it.
        ASSERT_EQ(run_child({"mkdir", "-p", folder_ / "python/attach"}).exit_code, 0);
        ASSERT_EQ(run_child({"cp", kAttachFile, folder_ / "python/attach"}).exit_code, 0);
        write_text(folder_ / "python/reprise/__init__.py", "");
        write_text(folder_ / "python/reprise/attach.py",
                   "import sys\n"
                   "class Finder:\n"
                   "    def find_spec(self, name, path=None, target=None): return None\n"
                   "def tell(how):\n"
                   "    if vars(sys).setdefault('told', how) is not how: return\n"
                   "    print('attached by', how)\n"
                   "    try: import ctypes\n"
                   "    except ImportError: return\n"  // an isolated interpreter refuses it
                   "    ctypes.CDLL(None).reprise_attached(2)\n"
                   "def finder():\n"
                   "    tell(sys._getframe(1).f_globals['__name__'] + '.py')\n"  // a new object each time
                   "    return Finder()\n"
                   "def attach(): tell(' '.join(['a pending', 'call']))\n");
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

    // Exactly this on stdout, and no word of ours or anybody's on stderr.
    static void expect_quiet(const ChildResult &result, const std::string &out, const std::string &how) {
        EXPECT_EQ(result.exit_code, 0) << how << describe(result);
        EXPECT_EQ(result.out, out) << how << describe(result);
        EXPECT_EQ(result.err, "") << how << describe(result);
    }

    // Those that REPRISE_TEST_PYTHONS lists: other versions than the one that the build found.
    static std::vector<std::string> pythons() {
        std::vector<std::string> out{kPython};
        const char *more = getenv("REPRISE_TEST_PYTHONS");
        std::istringstream names(more != nullptr ? more : "");
        for (std::string name; std::getline(names, name, ':');) out.push_back(name);
        return out;
    }

    TemporaryFolder folder_;
    ChildOptions options_;
};

TEST_F(Python, TheImportOfAFrameworkAttaches) {
    for (const std::string &python : pythons()) {
        for (const char *flag : {"-u", "-s", "-I", "-E"}) {
            const ChildResult result = run_child({python, flag, "-c", import_script()}, options_);
            expect_quiet(result, "attached by _reprise_early.py\nTrue\n", python + flag);
        }
    }
}

// Which of torch's and DeepSpeed's imports comes first, and in how many threads, makes no difference.
TEST_F(Python, SeveralThreadsMayWakeIt) {
    write_text(folder_ / "deepspeed.py", "ready = True\n");
    write_text(folder_ / "megatron.py", "ready = True\n");
    const std::string script = "import sys, threading, importlib; sys.path.insert(0, '" + folder_.path() +
                               "'); sys.setswitchinterval(1e-6)\n"
                               "names = ['torch', 'deepspeed', 'megatron'] * 4\n"
                               "threads = [threading.Thread(target=importlib.import_module, args=(n,)) for n in names]\n"
                               "[t.start() for t in threads]; [t.join() for t in threads]\n"
                               "print(sorted(n for n in set(names) if sys.modules[n].ready))\n";
    for (int i = 0; i < 20; i++) {
        const ChildResult result = run_child({kPython, "-c", script}, options_);
        EXPECT_EQ(result.out, "attached by _reprise_early.py\n['deepspeed', 'megatron', 'torch']\n") << describe(result);
        EXPECT_EQ(result.err, "") << describe(result);
    }
}

// A launcher of that name gets the folder on its path, and hands it down to the interpreter that it runs.
TEST_F(Python, ALauncherThatIsNoInterpreterLeavesNothingBehind) {
    ASSERT_EQ(run_child({"cp", "/usr/bin/env", folder_ / "python-launcher"}).exit_code, 0);
    const std::string script = import_script() + "import os; print(os.environ.get('PYTHONPATH'), [p for p in sys.path if 'attach' in p])";
    for (const char *path : {"", "/somewhere:/else"}) {
        if (path[0] != '\0') options_.environment["PYTHONPATH"] = path;
        const ChildResult result = run_child({folder_ / "python-launcher", kPython, "-c", script}, options_);
        EXPECT_EQ(result.out, "attached by _reprise_early.py\nTrue\n" + std::string(path[0] != '\0' ? path : "None") + " []\n")
            << describe(result);
        EXPECT_EQ(result.err, "") << describe(result);
    }
}

// From 3.12 on an interpreter that runs ends the process when somebody adds a built-in module.
TEST_F(Python, ARunningInterpreterMayOpenTheLibrary) {
    options_.environment.erase("LD_PRELOAD");
    const std::string script = "import ctypes, os; ctypes.CDLL('" + (folder_ / "libreprise.so") + "'); print(os.environ.get('PYTHONPATH'))";
    for (const std::string &python : pythons()) {
        const ChildResult result = run_child({python, "-c", script}, options_);
        EXPECT_EQ(result.exit_code, 0) << python << describe(result);
        EXPECT_EQ(result.out, "None\n") << python << describe(result);
    }
}

TEST_F(Python, WhereTheInterpreterTakesNoModuleOfOursThePathAttaches) {
    options_.environment["REPRISE_ATTACH"] = "path";
    for (const char *path : {"/somewhere", "/somewhere:/else"}) {
        options_.environment["PYTHONPATH"] = path;
        const ChildResult result =
            run_child({kPython, "-c", import_script() + "import os; print([os.environ.get('PYTHONPATH')])"}, options_);
        EXPECT_EQ(result.out, "attached by sitecustomize.py\nTrue\n['" + std::string(path) + "']\n") << describe(result);
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
    const std::string reload = "import importlib; importlib.reload(sitecustomize); print(sitecustomize.value)\n";
    const std::string again = "del sys.modules['sitecustomize']\nimport sitecustomize\nprint(sitecustomize.value)\n";
    ChildResult result =
        run_child({kPython, "-c", "import sys, sitecustomize\nprint(sitecustomize.value)\n" + reload + again + import_script()}, options_);
    const std::string line = folder_ / "own/sitecustomize.py\n";
    EXPECT_EQ(result.out, line + line + line + "attached by _reprise_early.py\nTrue\n") << describe(result);
    EXPECT_EQ(result.err, "") << describe(result);

    // Its errors are the user's, as without us.
    write_text(folder_ / "own/sitecustomize.py", "raise ValueError('mine')\n");
    result = run_child({kPython, "-c", import_script()}, options_);
    ChildOptions stock = options_;
    stock.environment.erase("LD_PRELOAD");
    const ChildResult without = run_child({kPython, "-c", "pass"}, stock);
    EXPECT_EQ(result.out, "attached by _reprise_early.py\nTrue\n") << describe(result);
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
        expect_quiet(result, "attached by a pending call\n[] []\n", flag);
    }
}

// A framework that imports nothing that we know, or an allocation before it.
TEST_F(Python, TheFirstTensorAttachesWhereNothingWasImported) {
    const ChildResult result = run_child({kPython, "-c", tensor_script()}, options_);
    EXPECT_EQ(result.out, "attached by a pending call\n[] []\n") << describe(result);
    EXPECT_EQ(result.err, "") << describe(result);
}

TEST_F(Python, AnAttachFileThatFailsDoesNotBecomeTheJobsError) {
    // The one behind us in sys.meta_path is asked all the same: it is the one that knows torch.
    const std::string script =
        "import sys, importlib.machinery as m\n"
        "class Only:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': return m.PathFinder.find_spec(name, ['" +
        folder_.path() +
        "'])\n"
        "sys.meta_path.insert(1, Only())\n"
        "import torch; print(torch.ready)\n";
    for (const char *error : {"RuntimeError('broken')", "SystemExit('broken')"}) {
        write_text(folder_ / "python/attach/sitecustomize.py", "raise " + std::string(error) + "\n");
        ChildResult result = run_child({kPython, "-c", script}, options_);
        EXPECT_EQ(result.exit_code, 0) << describe(result);
        EXPECT_EQ(result.out, "True\n") << describe(result);
        EXPECT_EQ(result.err.find("reprise: cannot attach to this Python: " + std::string(error, strchr(error, '('))), 0u)
            << describe(result);
        EXPECT_NE(result.err.find(": broken; the job runs as without Reprise\n"), std::string::npos) << describe(result);
        // Nobody there to be told.
        result = run_child({"sh", "-c", "exec \"$@\" 2>&-", "sh", kPython, "-c", script}, options_);
        EXPECT_EQ(result.out, "True\n") << describe(result);
    }
}

TEST_F(Python, AnAdapterThatFailsDoesNotBecomeTheJobsError) {
    write_text(folder_ / "python/reprise/attach.py", "raise RuntimeError('broken')\n");
    const ChildResult result = run_child({kPython, "-S", "-c", tensor_script()}, options_);
    EXPECT_EQ(result.exit_code, 0) << describe(result);
    EXPECT_EQ(result.out, "[] []\n") << describe(result);
    EXPECT_NE(result.err.find("reprise: cannot attach to this Python: RuntimeError: broken; it runs as without Reprise\n"),
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
    EXPECT_EQ(result.out, "attached by _reprise_early.py\nfork 0\nattached by _reprise_early.py\nspawn 0\n") << describe(result);
}

// An interpreter within the interpreter: with the lock of the first one, or (from 3.12 on) one of its own.
TEST_F(Python, SubinterpretersAreAttachedToo) {
    const std::string script =
        "import sys\n"
        "try: import _interpreters as x\n"
        "except ImportError: import _xxsubinterpreters as x\n"
        "try: x.run_string(x.create(), \"\"\"" +
        import_script() + "\"\"\")\n" + "except AttributeError: x.exec(x.create(), \"\"\"" + import_script() + "\"\"\")\n";
    for (const std::string &python : pythons()) {
        const ChildResult result = run_child({python, "-c", script}, options_);
        EXPECT_EQ(result.out.find("attached by _reprise_early.py\nTrue\n"), 0u) << python << describe(result);
    }
}

TEST_F(Python, OtherProgramsGetNoPythonpath) {
    EXPECT_EQ(run_child({"sh", "-c", "echo \"[$PYTHONPATH][$REPRISE_OWNER_PID]\""}, options_).out, "[][]\n");
}

TEST_F(Python, WithoutTheAdapterOneLineSaysWhatIsMissingAndWhere) {
    ASSERT_EQ(run_child({"rm", "-r", folder_ / "python"}).exit_code, 0);
    const ChildResult result = run_child({kPython, "-c", "print(1)"}, options_);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "1\n");
    EXPECT_EQ(result.err.find("reprise: nothing was attached in python"), 0u) << describe(result);
    EXPECT_NE(result.err.find("no python/attach, which instruments frameworks, is in " + folder_.path()), std::string::npos)
        << describe(result);
    options_.environment["REPRISE_REQUIRE"] = "1";
    EXPECT_EQ(run_child({kPython, "-c", "print(1)"}, options_).exit_code, 1);
}

}  // namespace
