#include "policy/log.h"
#include "allocator/base/quiet_signals.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdarg>
#include <cstdio>
#include <memory>

namespace reprise {
namespace {

spdlog::logger *logger = nullptr;
LogLevel wanted = LogLevel::kWarn;

spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
        case LogLevel::kError:
            return spdlog::level::err;
        case LogLevel::kWarn:
            return spdlog::level::warn;
        case LogLevel::kInfo:
            return spdlog::level::info;
        case LogLevel::kDebug:
            return spdlog::level::debug;
        case LogLevel::kOff:
            break;
    }
    return spdlog::level::off;
}

}  // namespace

void log_start(LogLevel level) {
    wanted = level;
    if (logger == nullptr) {
        // Leaked on purpose: exit handlers of others run after ours, and may still come through the C API.
        logger = new spdlog::logger("reprise", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        logger->set_pattern("reprise: %v");
        logger->flush_on(spdlog::level::trace);
    }
    logger->set_level(level_of(level));
}

bool log_wants(LogLevel level) { return level <= wanted; }

void log_line(LogLevel level, const std::string &text) {
    if (logger == nullptr || !log_wants(level)) return;
    const QuietSignals quiet;
    logger->log(level_of(level), "{}", text);
}

std::string format(const char *pattern, ...) {
    va_list arguments;
    va_start(arguments, pattern);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(nullptr, 0, pattern, arguments);
    va_end(arguments);
    std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
    if (length > 0) vsnprintf(text.data(), text.size() + 1, pattern, again);
    va_end(again);
    return text;
}

std::string human_bytes(uint64_t bytes) {
    static constexpr const char *kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < std::size(kUnits)) {
        value /= 1024;
        ++unit;
    }
    return unit == 0 ? format("%llu B", static_cast<unsigned long long>(bytes)) : format("%.1f %s", value, kUnits[unit]);
}

}  // namespace reprise
