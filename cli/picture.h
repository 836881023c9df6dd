// Pictures as PNG: drawn by matplotlib in a Python of the user's, through the module that comes with the package (reprise.plot). Used by
// plan and report; one thread.
#pragma once

#include <string>

#include "cli/records.h"

namespace reprise::cli {

// `drawing`: what reprise.plot takes (reprise.sweep/1, reprise.drawing/1). "" or what is wrong and what to do.
std::string draw_png(const Json &drawing, const std::string &path, const std::string &python);

}  // namespace reprise::cli
