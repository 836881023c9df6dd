// The page that `reprise report` writes: text, tables and pictures (SVG) in one file, nothing loaded from anywhere. Pure: Summary in, HTML
// out.
#pragma once

#include <string>
#include <vector>

#include "cli/summary.h"

namespace reprise::cli {

std::string report_html(const Summary &summary, const std::string &title, const std::vector<std::string> &sources);

}  // namespace reprise::cli
