// The picture of `reprise plan`: added time against the budget, a line per policy. Standing alone (a file of its own), readable on any
// background.
#pragma once

#include <string>

#include "cli/plan_sweep.h"

namespace reprise::cli {

std::string sweep_svg(const std::string &title, const Sweep &sweep);

// Ticks of an axis from 0 or `least` to `most` at round numbers of `base` (1024 for bytes, 1000 for time).
std::vector<double> round_ticks(double least, double most, double base);
std::string tick_text(double value, double base);

}  // namespace reprise::cli
