// Reads what Reprise writes (docs/formats.md): record files line by line, reports whole. Tolerant as that page asks: unknown fields are
// kept and ignored, a line that is not whole JSON is reported and skipped, a newer major version is refused. Used by inspect, verify,
// report, audit.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reprise::cli {

using Json = nlohmann::json;

enum class LineKind : uint8_t { kRecord, kContract, kReport, kProfile, kPlan, kTimeline, kForeign, kBroken, kTorn };

struct Line {
    uint64_t number = 0;  // from 1
    LineKind kind = LineKind::kForeign;
    Json json;            // an object, unless broken or torn
    std::string problem;  // foreign, broken, torn: what is wrong
};

struct ReadResult {
    std::string problem;  // why the file could not be read to its end, "" when it was
    uint64_t lines = 0;
};

// Calls `visit` for every line of the file ("-": standard input) that is not empty. A whole pretty-printed document (a report) is one line,
// number 1.
ReadResult read_file(const std::string &path, const std::function<void(Line &line)> &visit);

// Fields that may be missing or of another type.
std::string text_of(const Json &json, const char *field);
uint64_t number_of(const Json &json, const char *field);
const Json &array_of(const Json &json, const char *field);   // an empty array when there is none
const Json &object_of(const Json &json, const char *field);  // an empty object when there is none

}  // namespace reprise::cli
