#include "cli/text.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace reprise::cli {
namespace {

// The number of bytes of the whole UTF-8 sequence that begins at `at`, 0 when there is none.
size_t sequence(const std::string &text, size_t at) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(at);
    const size_t length = first < 0x80                    ? 1
                          : first >= 0xc2 && first < 0xe0 ? 2
                          : (first & 0xf0) == 0xe0        ? 3
                          : first >= 0xf0 && first < 0xf5 ? 4
                                                          : 0;
    if (length == 0 || at + length > text.size()) return 0;
    for (size_t i = 1; i < length; ++i) {
        if ((byte(at + i) & 0xc0) != 0x80) return 0;
    }
    return length;
}

size_t width(const std::string &text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string scaled(double value, double step, const std::vector<const char *> &units) {
    size_t unit = 0;
    while (unit + 1 < units.size() && std::fabs(value) >= step) {
        value /= step;
        ++unit;
    }
    if (unit == 0 || std::fabs(value) >= 100) return format("%.0f %s", value, units[unit]);
    return format(std::fabs(value) >= 10 ? "%.1f %s" : "%.2f %s", value, units[unit]);
}

}  // namespace

std::string format(const char *pattern, ...) {
    va_list arguments, again;
    va_start(arguments, pattern);
    va_copy(again, arguments);
    const int size = vsnprintf(nullptr, 0, pattern, arguments);
    va_end(arguments);
    std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
    if (size > 0) vsnprintf(text.data(), text.size() + 1, pattern, again);
    va_end(again);
    return text;
}

std::string human_bytes(double bytes) { return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}); }

std::string human_duration(double nanoseconds) { return scaled(nanoseconds, 1000, {"ns", "us", "ms", "s"}); }

std::string human_count(uint64_t count) {
    std::string digits = std::to_string(count);
    for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
    return digits;
}

std::string human_share(double share) {
    const double percent = share * 100;
    return format(percent != 0 && percent < 10 ? "%.1f %%" : "%.0f %%", percent);
}

std::string printable(const std::string &text) {
    std::string result;
    for (size_t at = 0; at < text.size();) {
        const size_t length = sequence(text, at);
        const auto first = static_cast<unsigned char>(text[at]);
        // C1 controls (U+0080 to U+009F) move a terminal's cursor too.
        const bool control =
            first < 0x20 || first == 0x7f || (length == 2 && first == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0);
        if (length == 0 || control) {
            result += '?';
        } else {
            result.append(text, at, length);
        }
        at += std::max<size_t>(length, 1);
    }
    return result;
}

std::string plural(uint64_t count, const char *what) { return human_count(count) + " " + what + (count == 1 ? "" : "s"); }

std::string Table::text(const char *indent) const {
    std::vector<size_t> widths;
    for (size_t c = 0; c < columns_.size(); ++c) {
        size_t widest = width(columns_[c].title);
        for (const auto &row : rows_) widest = std::max(widest, c < row.size() ? width(row[c]) : 0);
        widths.push_back(widest);
    }
    std::string result;
    const auto line = [&](const auto &cell_of) {
        std::string text = indent;
        for (size_t c = 0; c < columns_.size(); ++c) {
            const std::string cell = cell_of(c);
            const std::string padding(widths[c] - width(cell), ' ');
            text += columns_[c].align == Align::kRight ? padding + cell : cell + padding;
            if (c + 1 < columns_.size()) text += "  ";
        }
        text.erase(text.find_last_not_of(' ') + 1);
        result += text + '\n';
    };
    line([&](size_t c) { return columns_[c].title; });
    line([&](size_t c) { return std::string(c + 1 < columns_.size() ? widths[c] : width(columns_[c].title), '-'); });
    for (const auto &row : rows_) line([&](size_t c) { return c < row.size() ? row[c] : std::string(); });
    return result;
}

void complain(const char *command, const std::string &text) {
    fflush(stdout);
    fprintf(stderr, "reprise %s: %s\n", command, text.c_str());
}

}  // namespace reprise::cli
