// How a function says that it failed: a code that can leave through the C API, and one sentence (what, where, what to do).
// No allocation and no exceptions, so that every layer can use it. The first function that decides it is an error writes the sentence.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "reprise/reprise.h"

namespace reprise {

class [[nodiscard]] Status {
  public:
    static constexpr size_t kTextCapacity = 480;

    // Not defaulted: `return {}` would zero the sentence, half a KiB for every buffer of every segment.
    Status() noexcept {}  // NOLINT(modernize-use-equals-default)
    Status(const Status &other) noexcept { *this = other; }
    Status &operator=(const Status &other) noexcept {
        code_ = other.code_;
        if (!ok() && this != &other) memcpy(text_, other.text_, kTextCapacity);
        return *this;
    }
    __attribute__((format(printf, 2, 3))) static Status error(reprise_status code, const char *format, ...) {
        Status status;
        status.code_ = code;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(status.text_, kTextCapacity, format, arguments);
        va_end(arguments);
        return status;
    }

    bool ok() const { return code_ == REPRISE_OK; }
    reprise_status code() const { return code_; }
    const char *text() const { return ok() ? "" : text_; }

  private:
    reprise_status code_ = REPRISE_OK;
    char text_[kTextCapacity];  // meaningful only when code_ is not REPRISE_OK
};

// A value, or why there is none. T must be default-constructible and movable.
template <class T>
class [[nodiscard]] Result {
  public:
    Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor): reads as the value
    Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor): reads as the failure

    bool ok() const { return status_.ok(); }
    const Status &status() const { return status_; }
    T &value() { return value_; }
    const T &value() const { return value_; }

  private:
    Status status_;
    T value_{};
};

}  // namespace reprise
