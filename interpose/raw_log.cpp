#include "interpose/raw_log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "allocator/base/quiet_signals.h"
#include "interpose/environment.h"

namespace reprise {
namespace {

constinit std::atomic<int> g_level{-1};

// The level that a name stands for; -1 for none.
int parse_level(const char *text) {
    static constexpr const char *kNames[] = {"off", "error", "warn", "info", "debug"};
    for (int i = 0; i < 5; ++i)
        if (strcmp(text, kNames[i]) == 0) return i;
    return -1;
}

}  // namespace

LogLevel log_level() {
    int level = g_level.load(std::memory_order_relaxed);
    if (level >= 0) [[likely]]
        return static_cast<LogLevel>(level);
    if (!environment_ready()) return LogLevel::kWarn;
    const char *text = environment("REPRISE_LOG");
    level = text == nullptr ? -1 : parse_level(text);
    if (level < 0) level = static_cast<int>(LogLevel::kWarn);
    g_level.store(level, std::memory_order_relaxed);
    return static_cast<LogLevel>(level);
}

void complain_of_log_level() {
    const char *text = environment("REPRISE_LOG");
    if (text == nullptr || text[0] == '\0' || parse_level(text) >= 0) return;
    LogLine(LogLevel::kWarn) << "REPRISE_LOG=" << text << " is none of off, error, warn, info, debug: taking warn";
}

LogLine::LogLine(LogLevel level) : enabled_(level <= log_level() && level != LogLevel::kOff) { *this << "reprise: "; }

LogLine &LogLine::operator<<(const char *text) {
    if (!enabled_ || text == nullptr) return *this;
    const size_t room = sizeof text_ - 1 - length_;  // one byte stays for the newline
    size_t length = strlen(text);
    if (length > room) length = room;
    memcpy(text_ + length_, text, length);
    length_ += length;
    return *this;
}

LogLine &LogLine::operator<<(uint64_t number) {
    char digits[21];
    char *at = digits + sizeof digits - 1;
    *at = '\0';
    do {
        *--at = static_cast<char>('0' + number % 10);
        number /= 10;
    } while (number != 0);
    return *this << at;
}

LogLine::~LogLine() {
    if (!enabled_) return;
    const int saved = errno;
    text_[length_++] = '\n';
    const QuietSignals quiet;
    // One write, so that lines of several processes do not mix. A closed or full stderr loses the line: there is nowhere else to say it.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text_, length_);
    errno = saved;
}

TextBuffer &TextBuffer::operator<<(const char *text) {
    if (text == nullptr || length_ + 1 >= capacity_) return *this;
    size_t length = strlen(text);
    if (length > capacity_ - 1 - length_) length = capacity_ - 1 - length_;
    memcpy(into_ + length_, text, length);
    length_ += length;
    into_[length_] = '\0';
    return *this;
}

}  // namespace reprise
