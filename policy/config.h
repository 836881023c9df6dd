// What the environment asks for. Read once, when the engine opens; a value that does not parse is said (which variable, what it may be) and
// its default is used, so that a typing error never takes a job down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

enum class Policy : uint8_t { kSelective, kWhole, kAudit, kOff };
enum class Verify : uint8_t { kOff, kDigest, kBytes };
enum class OnReject : uint8_t { kFail, kWarn };
enum class LogLevel : uint8_t { kOff, kError, kWarn, kInfo, kDebug };

const char *to_string(Policy policy);

struct Config {
    Policy policy = Policy::kSelective;
    Verify verify = Verify::kOff;
    OnReject on_reject = OnReject::kFail;
    LogLevel log = LogLevel::kWarn;
    uint64_t budget = 0;  // bytes; 0: none given
    std::string records;  // path, "" for none
    std::string report;   // path of the statistics written at exit, "" for none
    bool force_compare = false;
    bool require = false;
    uint64_t busy_timeout_ms = 30000;
    std::vector<std::string> complaints;  // one sentence per value that did not parse

    // `lookup(name)` is getenv; tests pass their own.
    static Config from_environment(const char *(*lookup)(const char *name));
};

// "44GiB", "512M", "1.5g", "1073741824", "80%" (of `whole`). False when it does not parse or is zero.
bool parse_budget(const std::string &text, uint64_t whole, uint64_t *bytes);

}  // namespace reprise
