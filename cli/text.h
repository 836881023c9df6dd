// What people read: sizes, durations, tables, quoted names. Used by every subcommand, on the one thread that the command has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::cli {

__attribute__((format(printf, 1, 2))) std::string format(const char *pattern, ...);

std::string human_bytes(double bytes);           // "1.5 MiB", "312 B"
std::string human_duration(double nanoseconds);  // "12.4 ms", "850 ns"
std::string human_count(uint64_t count);         // "12,345"
std::string human_share(double share);           // "4.2 %"
std::string printable(const std::string &text);  // control characters and torn UTF-8 as '?': names come from files, and reach a terminal
std::string plural(uint64_t count, const char *what);  // "1 replay", "2 replays"

// Columns as wide as their widest cell; the last one may be any length. Numbers stand right.
class Table {
  public:
    enum class Align : uint8_t { kLeft, kRight };
    struct Column {
        std::string title;
        Align align = Align::kLeft;
    };

    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
    void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    bool empty() const { return rows_.empty(); }
    std::string text(const char *indent = "") const;

  private:
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

// One line on stderr, "reprise COMMAND: ...".
void complain(const char *command, const std::string &text);

}  // namespace reprise::cli
