#include "cli/picture.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cli/child.h"
#include "cli/output.h"
#include "cli/place.h"
#include "cli/program.h"
#include "cli/text.h"

namespace reprise::cli {
namespace {

constexpr int kSeconds = 120;

std::string last_line(std::string text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    const size_t at = text.rfind('\n');
    return at == std::string::npos ? text : text.substr(at + 1);
}

}  // namespace

std::string draw_png(const Json &drawing, const std::string &path, const std::string &python) {
    const Place place = find_library("");
    if (place.library.empty()) return place.problem;
    const std::string module = find_beside(place.library, "python/reprise/plot.py");
    if (module.empty()) return "the Python package is not beside " + printable(place.library) + ": install Reprise as a whole";
    const Program found = find_program(python.empty() ? "python3" : python);
    if (found.failure != 0) return found.problem + ": name a Python that has matplotlib with --python";
    std::string input = temporary_pattern("plot");
    const int file = mkstemp(input.data());
    if (file < 0) return "no temporary file can be made (" + std::string(strerror(errno)) + "): set TMPDIR to a folder that can be written";
    close(file);
    if (const std::string problem = write_whole(input, drawing.dump(-1, ' ', false, Json::error_handler_t::replace)); !problem.empty()) {
        unlink(input.c_str());
        return "the temporary file " + input + " cannot be written (" + problem + ")";
    }
    const ChildResult child =
        run_and_read({found.path, module, input, absolute(path)}, {{"LD_PRELOAD", ""}, {"MPLBACKEND", "Agg"}}, kSeconds);
    unlink(input.c_str());
    if (child.timed_out) return printable(found.path) + " did not end within " + std::to_string(kSeconds) + " s";
    if (child.status == 0) return "";
    const std::string said = printable(last_line(child.err));
    return said.empty() ? printable(found.path) + " ended with status " + std::to_string(child.status) : said;
}

}  // namespace reprise::cli
