#include "cli/records.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/text.h"

namespace reprise::cli {
namespace {

constexpr uint64_t kMajor = 1;
constexpr int kDeepest = 200;
constexpr size_t kLargestDocument = size_t{256} << 20;

std::string excerpt(const std::string &text) { return "'" + printable(text.substr(0, 40)) + (text.size() > 40 ? "...'" : "'"); }

struct Nesting {
    int deepest = 0;
    bool open = false;  // ends inside a string, an object or an array: the rest is missing
};

Nesting nesting(const std::string &text) {
    Nesting result;
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            result.deepest = std::max(result.deepest, ++depth);
        } else if (c == '}' || c == ']') {
            --depth;
        }
    }
    result.open = in_string || depth > 0;
    return result;
}

// Text that is nested deeper than anything of ours is not parsed: copying and printing such a value would take the stack with it.
Json parse(const std::string &text) {
    return nesting(text).deepest > kDeepest ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
}

// Says what the line is; false when the file must be refused from here on, with the sentence in `refusal`.
bool classify(Line &line, std::string *refusal) {
    const std::string schema = text_of(line.json, "schema");
    const size_t slash = schema.rfind('/');
    const std::string name = schema.substr(0, slash);
    line.kind = name == "reprise.record"     ? LineKind::kRecord
                : name == "reprise.contract" ? LineKind::kContract
                : name == "reprise.report"   ? LineKind::kReport
                : name == "reprise.profile"  ? LineKind::kProfile
                : name == "reprise.plan"     ? LineKind::kPlan
                : name == "reprise.timeline" ? LineKind::kTimeline
                                             : LineKind::kForeign;
    if (line.kind == LineKind::kForeign) {
        line.problem = schema.empty() ? "has no schema" : "has the unknown schema " + excerpt(schema);
        return true;
    }
    char *end = nullptr;
    const std::string version = slash == std::string::npos ? "" : schema.substr(slash + 1);
    errno = 0;
    const unsigned long long major = strtoull(version.c_str(), &end, 10);
    // "1.3" is a minor version of 1.
    if (version.empty() || version[0] < '0' || version[0] > '9' || (*end != 0 && *end != '.') || errno != 0) {
        line.kind = LineKind::kForeign;
        line.problem = "has a schema without a version: " + excerpt(schema);
        return true;
    }
    if (major != kMajor) {
        *refusal = format("line %llu is %s, and this command reads version %llu: use the reprise command of the release that wrote it",
                          static_cast<unsigned long long>(line.number), printable(schema.substr(0, 60)).c_str(),
                          static_cast<unsigned long long>(kMajor));
        return false;
    }
    return true;
}

}  // namespace

std::string text_of(const Json &json, const char *field) {
    const auto found = json.is_object() ? json.find(field) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

uint64_t number_of(const Json &json, const char *field) {
    const auto found = json.is_object() ? json.find(field) : json.end();
    if (found == json.end()) return 0;
    if (found->is_number_unsigned()) return found->get<uint64_t>();
    return 0;
}

const Json &array_of(const Json &json, const char *field) {
    static const Json *const empty = new Json(Json::array());
    const auto found = json.is_object() ? json.find(field) : json.end();
    return found != json.end() && found->is_array() ? *found : *empty;
}

const Json &object_of(const Json &json, const char *field) {
    static const Json *const empty = new Json(Json::object());
    const auto found = json.is_object() ? json.find(field) : json.end();
    return found != json.end() && found->is_object() ? *found : *empty;
}

ReadResult read_file(const std::string &path, const std::function<void(Line &line)> &visit) {
    ReadResult result;
    std::ifstream file;
    if (path != "-") {
        struct stat status {};
        if (stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) {
            result.problem = S_ISDIR(status.st_mode) ? "is a folder: name a record file or a report" : strerror(errno);
            return result;
        }
        file.open(path, std::ios::binary);
        if (!file) {
            result.problem = std::string("cannot be opened: ") + strerror(errno);
            return result;
        }
    }
    std::istream &in = path == "-" ? std::cin : file;
    std::string text;
    for (bool first = true; std::getline(in, text); first = false) {
        Line line;
        line.number = ++result.lines;
        const bool ended = !in.eof();
        if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
        line.json = parse(text);
        if (first && (text == "{" || text == "{\r")) {
            // A document over many lines (a report): whole or nothing.
            const std::string rest((std::istreambuf_iterator<char>(in)), {});
            if (rest.size() > kLargestDocument) {
                result.problem = "is one document of more than 256 MiB: this is no report of Reprise's";
                return result;
            }
            line.json = parse(text + "\n" + rest);
            if (!line.json.is_object()) {
                result.problem = "is not whole JSON: the report was cut short, or this is another kind of file";
                return result;
            }
        }
        if (line.json.is_object()) {
            if (!classify(line, &result.problem)) return result;
        } else {
            // Half a line begins as whole ones do; what comes after it stands on a line of its own.
            const bool torn = line.json.is_discarded() && text[0] == '{' && nesting(text).open && nesting(text).deepest <= kDeepest;
            line.kind = torn ? LineKind::kTorn : LineKind::kBroken;
            line.problem = !torn   ? "is not a JSON object: "
                           : ended ? "is half a line: its run was killed while it wrote "
                                   : "is truncated: its run was killed, or is still writing ";
            line.problem += excerpt(text);
            line.json = Json::object();
        }
        visit(line);
    }
    if (in.bad()) result.problem = std::string("cannot be read: ") + strerror(errno);
    return result;
}

}  // namespace reprise::cli
