// Pieces of a page that several of its sections use. Names come from files: everything that is shown goes through html(). One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace reprise::cli {

// Markup in it is text.
std::string escape_html(const std::string &text);
std::string html(const std::string &text);  // printable, too

// A value and what it is, in a box of its own.
void card(std::string &out, const std::string &value, const std::string &what, bool bad = false);
// Columns that can be sorted by; true: numbers.
void head_row(std::string &out, const std::vector<std::pair<const char *, bool>> &columns);
std::string number_cell(int64_t value, const std::string &shown, bool bad = false);
// A box that hides the rows of table `id` whose first cell does not contain what is typed.
std::string filter_box(const char *id, const char *what);

}  // namespace reprise::cli
