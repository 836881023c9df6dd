// Programs: does the preload load into a child and work there, does Python attach, is there a GPU?
#include <unistd.h>
#include <cstdlib>

#include "cli/child.h"
#include "cli/doctor.h"
#include "cli/job.h"
#include "cli/place.h"
#include "cli/probe_child.h"
#include "cli/program.h"
#include "cli/records.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

constexpr int kSeconds = 30, kTorchSeconds = 180;

std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t at = text.rfind('\n');
    return printable(at == std::string::npos ? text : text.substr(at + 1));
}

// The last line of what it printed that is a JSON object: the other lines may be anybody's.
Json answer(const ChildResult &child) {
    for (size_t end = child.out.size(); end > 0;) {
        const size_t before = child.out.rfind('\n', end - 1);
        const size_t begin = before == std::string::npos ? 0 : before + 1;
        Json json = Json::parse(child.out.substr(begin, end - begin), nullptr, false);
        if (json.is_object()) return json;
        end = before == std::string::npos ? 0 : before;
    }
    return Json::object();
}

std::string why(const ChildResult &child) {
    if (!child.started) return "no process can be started";
    if (child.timed_out) return "it did not end in time";
    const std::string said = last_line(child.err);
    return format("it ended with status %d", child.status) + (said.empty() ? "" : ": " + said);
}

bool flag(const Json &json, const char *name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_boolean() && found->get<bool>();
}

// The tiny job: a checkpointed segment whose state changes between forward and backward, on its own and under Reprise.
const char kTorchProbe[] = R"(
import json, sys
result = {"python": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable}
def finish(**more):
    result.update(more); print(json.dumps(result)); sys.stdout.flush(); sys.exit(0)
try:
    import reprise
    result["reprise"] = reprise.__version__
except Exception as error:
    result["reprise_error"] = "%s: %s" % (type(error).__name__, error)
try:
    import torch
except ImportError as error:
    finish(torch_error=str(error))
except Exception as error:
    finish(torch_error="%s: %s" % (type(error).__name__, error))
result["torch"] = torch.__version__
try:
    from torch.utils.checkpoint import checkpoint
    torch.set_num_threads(1)
    right = True
    for reentrant in (False, True):
        state = torch.ones(1 << 15)
        weight = torch.full((1 << 15,), 2.0, requires_grad=True)
        y = checkpoint(lambda w: (w * w * state).sum(), weight, use_reentrant=reentrant)
        with torch.no_grad():
            state.mul_(3)
        y.backward()
        right = right and bool((weight.grad == 4).all()) and bool((state == 3).all())
    result["gradients_right"] = right
    patch = sys.modules.get("reprise.pytorch.patch")
    active = patch.active() if patch is not None else None
    result["attached"] = active is not None
    result["refused"] = active is not None and active.state == patch.REFUSED
except Exception as error:
    finish(job_error="%s: %s" % (type(error).__name__, str(error).splitlines()[0] if str(error) else ""))
finish()
)";

}  // namespace

void examine_preload(Diagnosis &diagnosis, const std::string &library) {
    if (find_beside(library, "libreprise_engine.so").empty()) {
        diagnosis.add("engine", Health::kBroken, "libreprise_engine.so is neither beside " + library + " nor in reprise/ below it",
                      "install Reprise as a whole (cmake --install)");
    }
    const std::string preload = preload_list(library);
    std::string scratch = temporary_pattern("doctor");
    const int file = mkstemp(scratch.data());
    if (file >= 0) close(file);
    const ChildResult child = run_and_read({own_executable(), kProbeWord, "segment"},
                                           {{"LD_PRELOAD", preload},
                                            {"REPRISE_POLICY", ""},
                                            {"REPRISE_RECORDS", ""},
                                            {"REPRISE_REQUIRE", ""},
                                            {"REPRISE_LOG", "error"},
                                            {"REPRISE_REPORT", file >= 0 ? scratch : ""}},
                                           kSeconds);
    const Json said = answer(child);
    std::string source;
    if (file >= 0) {
        read_file(scratch, [&](Line &line) { source = text_of(line.json, "dirty_source"); });
        unlink(scratch.c_str());
    }
    if (!flag(said, "loaded")) {
        diagnosis.add(
            "preload", Health::kBroken,
            "LD_PRELOAD=" + printable(preload) + " did not load into a child: " + (said.empty() ? why(child) : last_line(child.err)),
            "see what the loader says: LD_PRELOAD=" + printable(library) + " LD_DEBUG=libs /bin/true");
        return;
    }
    const std::string about = printable(library) + " " + printable(text_of(said, "version"));
    if (!flag(said, "interposed")) {
        diagnosis.add("preload", Health::kLimited,
                      about + " loads, but another library's malloc comes first: tensors cannot be seen, declared memory can",
                      "put libreprise.so first in LD_PRELOAD");
    } else {
        diagnosis.add("preload", Health::kGood, about + " loads into a child, and its malloc is the child's");
    }
    if (!flag(said, "replayed")) {
        diagnosis.add("replay", Health::kBroken, said.contains("problem") ? printable(text_of(said, "problem")) : why(child),
                      "reinstall Reprise; its parts must be of one release");
    } else {
        diagnosis.add("replay", Health::kGood,
                      "a segment in that child was replayed on what its forward saw, and memory put back" +
                          (source.empty() ? "" : " (" + printable(source) + ")"));
    }
}

void examine_python(Diagnosis &diagnosis, const std::string &library, const std::string &python) {
    const Program found = find_program(python.empty() ? "python3" : python);
    if (found.failure != 0) {
        diagnosis.add("python", python.empty() ? Health::kNote : Health::kBroken, found.problem,
                      "for Python jobs: install Python 3.9 or newer, or name it with --python");
        return;
    }
    for (const std::string &warning : found.warnings)
        diagnosis.add("python", Health::kLimited, warning, "use a Python that is linked dynamically against glibc");
    const ChildResult child = run_and_read({found.path, "-c", kTorchProbe},
                                           {{"LD_PRELOAD", library},
                                            {"REPRISE_POLICY", ""},
                                            {"REPRISE_RECORDS", ""},
                                            {"REPRISE_REPORT", ""},
                                            {"REPRISE_REQUIRE", ""},
                                            {"REPRISE_LOG", "error"},
                                            {"OMP_NUM_THREADS", "1"}},
                                           kTorchSeconds);
    const Json said = answer(child);
    if (said.empty()) {
        diagnosis.add("python", Health::kLimited, printable(found.path) + " does not run a program under the preload: " + why(child),
                      "try it by hand: reprise run -- " + printable(found.path) + " -c 'print(1)'");
        return;
    }
    const std::string name = "Python " + printable(text_of(said, "python")) + " (" + printable(text_of(said, "executable")) + ")";
    if (said.contains("reprise_error")) {
        diagnosis.add("python", Health::kLimited, name + " cannot import reprise: " + printable(text_of(said, "reprise_error")),
                      "install Reprise as a whole: the package belongs below libreprise.so");
    } else {
        diagnosis.add("python", Health::kGood,
                      name + " finds reprise " + printable(text_of(said, "reprise")) + " by itself under the preload");
    }
    if (said.contains("torch_error")) {
        diagnosis.add("torch", Health::kNote, "not there: " + printable(text_of(said, "torch_error")),
                      "for torch jobs: name the Python that has it with --python");
        return;
    }
    const std::string torch = "torch " + printable(text_of(said, "torch"));
    const std::string details = last_line(child.err);
    if (said.contains("job_error")) {
        diagnosis.add("torch", Health::kLimited, torch + ": a checkpoint fails under Reprise: " + printable(text_of(said, "job_error")),
                      "run with REPRISE_LOG=debug, and report it");
    } else if (flag(said, "refused") || !flag(said, "attached")) {
        diagnosis.add(
            "torch", Health::kLimited,
            torch +
                (flag(said, "refused") ? ": the adapter's self-test failed, checkpoints run unprotected" : ": the adapter did not attach") +
                (details.empty() ? "" : ": " + details),
            "use torch 2.1 or newer; docs/torch-adapter.md says what the adapter relies on");
    } else if (!flag(said, "gradients_right")) {
        diagnosis.add("torch", Health::kBroken, torch + ": a checkpoint on changed state came out wrong",
                      "do not train with this combination under Reprise, and report it");
    } else {
        diagnosis.add("torch", Health::kGood,
                      torch + ": the adapter's self-test passes, and checkpoints of both forms on changed state gave the right gradients");
    }
}

void examine_gpu(Diagnosis &diagnosis) {
    const ChildResult child = run_and_read({own_executable(), kProbeWord, "cuda"}, {}, kSeconds);
    const Json said = answer(child);
    const bool node = access("/dev/nvidia0", F_OK) == 0;
    std::string names;
    const Json &devices = array_of(said, "devices");
    for (const Json &device : devices)
        names += (names.empty() ? "" : ", ") + (device.is_string() ? printable(device.get<std::string>()) : "?");
    const std::string remedy =
        "memory on the GPU is not preserved: keep state that changes on the host; the torch adapter names what is not protected";
    if (!devices.empty()) {
        diagnosis.add("GPU", Health::kLimited,
                      plural(devices.size(), "device") + " (" + names + "), CUDA driver " + printable(text_of(said, "version")), remedy);
    } else if (said.empty()) {
        diagnosis.add("GPU", Health::kNote, "the CUDA driver cannot be asked: " + why(child));
    } else if (node || flag(said, "driver")) {
        diagnosis.add("GPU", Health::kNote,
                      std::string(node ? "/dev/nvidia0 is there" : "libcuda.so.1 is there") + ", but no device can be used" +
                          (said.contains("problem") ? " (" + printable(text_of(said, "problem")) + ")" : ""));
    } else {
        diagnosis.add("GPU", Health::kGood, "none: everything is in host memory, which is what Reprise preserves");
    }
}

}  // namespace reprise::cli
