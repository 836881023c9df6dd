// The sections of the page about planning: what was decided and why, and memory in a cycle against plan and budget. Used by report_html.
#pragma once

#include <string>

#include "cli/cycles.h"

namespace reprise::cli {

// Nothing when the file says nothing about planning.
void planning_sections(std::string &out, const Cycles &cycles);

// Of the latest measured cycle, for reprise.plot (reprise.drawing/1); null when there is none.
Json timeline_drawing(const Cycles &cycles, const std::string &title);

}  // namespace reprise::cli
