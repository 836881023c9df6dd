#include "cli/probe_child.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reprise/detail/engine_abi.h"

namespace reprise::cli {
namespace {

using Json = nlohmann::json;

// From what is preloaded: this command links nothing of it.
template <class Function>
Function *preloaded(const char *name) {
    return reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
}
#define REPRISE_PRELOADED(name) const auto name = preloaded<decltype(::name)>(#name)

Json probe_segment() {
    REPRISE_PRELOADED(reprise_version);
    if (reprise_version == nullptr) return {{"loaded", false}};
    Json result = {{"loaded", true}, {"version", reprise_version()}};
    REPRISE_PRELOADED(reprise_interposed);
    REPRISE_PRELOADED(reprise_track);
    REPRISE_PRELOADED(reprise_segment_begin);
    REPRISE_PRELOADED(reprise_segment_end);
    REPRISE_PRELOADED(reprise_last_error);
    if (reprise_interposed == nullptr || reprise_track == nullptr || reprise_segment_begin == nullptr || reprise_segment_end == nullptr ||
        reprise_last_error == nullptr) {
        result["problem"] = "its libreprise.so lacks functions that this command knows: the two are of different releases";
        return result;
    }
    result["interposed"] = reprise_interposed() != 0;
    constexpr size_t kWords = size_t{1} << 17, kChanged = 4321;
    std::vector<uint64_t> state(kWords, 1);
    const auto fail = [&](const char *what) {
        result["problem"] = std::string(what) + ": " + reprise_last_error();
        return result;
    };
    if (reprise_track(state.data(), kWords * sizeof(uint64_t), "doctor", 0) != REPRISE_OK) return fail("reprise_track");
    // Several windows: by the third the mechanism has settled.
    for (uint64_t window = 1; window <= 4; ++window) {
        const reprise_segment forward = reprise_segment_begin("doctor", 0);
        if (forward.status != REPRISE_OK) return fail("the forward");
        if (reprise_segment_end(forward) != REPRISE_OK) return fail("the end of the forward");
        state[kChanged] = window + 1;
        const reprise_segment replay = reprise_segment_begin("doctor", forward.instance);
        if (replay.status != REPRISE_OK) return fail("the replay");
        const bool old_seen = state[kChanged] == window;
        if (reprise_segment_end(replay) != REPRISE_OK) return fail("the end of the replay");
        if (!old_seen || state[kChanged] != window + 1) {
            result["problem"] =
                old_seen ? "after the replay memory was not what it had been" : "the replay did not see what its forward saw";
            return result;
        }
    }
    result["replayed"] = true;
    return result;
}

Json probe_cuda() {
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return {{"driver", false}};
    Json result = {{"driver", true}};
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    const auto count = reinterpret_cast<int (*)(int *)>(dlsym(driver, "cuDeviceGetCount"));
    const auto name = reinterpret_cast<int (*)(char *, int, int)>(dlsym(driver, "cuDeviceGetName"));
    const auto version = reinterpret_cast<int (*)(int *)>(dlsym(driver, "cuDriverGetVersion"));
    if (init == nullptr || count == nullptr || name == nullptr || version == nullptr) {
        result["problem"] = "libcuda.so.1 is no CUDA driver";
        return result;
    }
    if (const int error = init(0); error != 0) {
        result["problem"] = "cuInit fails with error " + std::to_string(error);
        return result;
    }
    int devices = 0, number = 0;
    count(&devices);
    version(&number);
    result["version"] = std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
    result["devices"] = Json::array();
    for (int i = 0; i < devices; ++i) {
        char text[256] = "";
        if (name(text, sizeof text - 1, i) == 0) result["devices"].push_back(text);
    }
    return result;
}

}  // namespace

int probe_child(int count, char **words) {
    const char *const what = count == 1 ? words[0] : "";
    Json result;
    if (strcmp(what, "segment") == 0) {
        result = probe_segment();
    } else if (strcmp(what, "cuda") == 0) {
        result = probe_cuda();
    } else {
        return 2;
    }
    puts(result.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    return 0;
}

}  // namespace reprise::cli
