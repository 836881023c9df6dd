// Lines for people on stderr, each "reprise: ...". Through spdlog, whose logger is never destroyed: lines are written until the very end.
#pragma once

#include <string>

#include "policy/config.h"

namespace reprise {

void log_start(LogLevel level);
bool log_wants(LogLevel level);
void log_line(LogLevel level, const std::string &text);

// printf for std::string.
__attribute__((format(printf, 1, 2))) std::string format(const char *pattern, ...);
// 1536 -> "1.5 KiB".
std::string human_bytes(uint64_t bytes);

}  // namespace reprise
