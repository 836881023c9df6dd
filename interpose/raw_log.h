// Lines to the job's stderr from places where nothing may allocate, lock or raise: write(2) from a buffer on the stack.
//
// Called from every file of this folder, from any thread, also inside malloc and before the constructor. errno is kept. stdio and spdlog
// are no choice here: both allocate and lock, and the hook may already be inside either.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise {

enum class LogLevel : int { kOff = 0, kError, kWarn, kInfo, kDebug };

// REPRISE_LOG, `warn` when unset; parsed at first use.
LogLevel log_level();
// Says that REPRISE_LOG cannot be understood, if so. For the process that speaks for the job, so that it is said once.
void complain_of_log_level();

// One line "reprise: ..." composed by <<, sent by the destructor when `level` is enabled; cut at the buffer's end.
class LogLine {
  public:
    explicit LogLine(LogLevel level);
    ~LogLine();
    LogLine(const LogLine &) = delete;
    LogLine &operator=(const LogLine &) = delete;
    LogLine &operator<<(const char *text);
    LogLine &operator<<(uint64_t number);

  private:
    bool enabled_;
    size_t length_ = 0;
    char text_[1024];
};

// As a LogLine, into a caller's buffer of `capacity` bytes (always terminated): for reprise_last_error().
class TextBuffer {
  public:
    TextBuffer(char *into, size_t capacity) : into_(into), capacity_(capacity) { into_[0] = '\0'; }
    TextBuffer &operator<<(const char *text);

  private:
    char *into_;
    size_t capacity_;
    size_t length_ = 0;
};

}  // namespace reprise
