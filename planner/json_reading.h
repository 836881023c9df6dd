// What the readers of the planner's texts share: values with the place where they stand, so that a refusal says what is wrong where, and
// the words for the planner's numbers. A Refusal does not leave the planner: the readers make a Status of it. Private to the planner.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::planner {

// By the number of the enumerators.
inline constexpr const char *kKindNames[] = {"small", "whole", "selective", "regions"};
inline constexpr const char *kFreedomNames[] = {"open", "retain", "replay"};

class Refusal : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

template <size_t N>
int index_of(const char *const (&names)[N], const std::string &name, const char *what) {
    for (size_t k = 0; k < N; k++)
        if (name == names[k]) return static_cast<int>(k);
    std::string all;
    for (const char *known : names) all += (all.empty() ? "" : ", ") + std::string(known);
    throw Refusal(std::string("unknown ") + what + " '" + name.substr(0, 80) + "' (known: " + all + ")");
}

// A value within a text. Unknown fields are never looked at.
class Place {
  public:
    Place(const nlohmann::json &value, std::string path) : value_(value), path_(std::move(path)) {}

    Place field(const char *name) const {
        if (!value_.is_object()) refuse("is no object");
        auto found = value_.find(name);
        if (found == value_.end()) Place(value_, joined(name)).refuse("is missing");
        return {*found, joined(name)};
    }
    bool has(const char *name) const { return value_.is_object() && value_.contains(name); }
    bool null() const { return value_.is_null(); }

    size_t size() const {
        if (!value_.is_array()) refuse("is no array");
        return value_.size();
    }
    Place at(size_t index) const {
        if (index >= size()) refuse("has only " + std::to_string(size()) + " entries");
        return {value_[index], path_ + "[" + std::to_string(index) + "]"};
    }

    std::string text() const {
        if (!value_.is_string()) refuse("is no text");
        return value_.get<std::string>();
    }
    bool flag() const {
        if (!value_.is_boolean()) refuse("is neither true nor false");
        return value_.get<bool>();
    }
    int64_t number(int64_t least = 0, int64_t most = INT64_MAX) const {
        if (!value_.is_number_integer()) refuse("is no whole number");
        if (value_.is_number_unsigned() && value_.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) refuse("is beyond reason");
        const auto number = value_.get<int64_t>();
        if (number < least || number > most)
            refuse("is " + std::to_string(number) + ", and must be " +
                   (most == INT64_MAX ? "at least " + std::to_string(least) : std::to_string(least) + " to " + std::to_string(most)));
        return number;
    }
    int32_t small_number(int32_t least = 0, int32_t most = INT32_MAX) const { return static_cast<int32_t>(number(least, most)); }

    template <size_t N>
    int word(const char *const (&names)[N], const char *what) const {
        try {
            return index_of(names, text(), what);
        } catch (const Refusal &refusal) {
            throw Refusal(path_ + ": " + refusal.what());
        }
    }

    [[noreturn]] void refuse(const std::string &what) const { throw Refusal((path_.empty() ? "the text" : path_) + " " + what); }

  private:
    std::string joined(const char *name) const { return path_.empty() ? name : path_ + "." + name; }

    const nlohmann::json &value_;
    std::string path_;
};

// Parses a text of this schema ("reprise.plan") and major version 1. Minor versions ("/1.3") only add fields.
inline nlohmann::json parse_text(std::string_view text, const std::string &schema) {
    nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
    if (value.is_discarded()) throw Refusal("it is not whole JSON: cut off, or another kind of file");
    const std::string found = Place(value, "").field("schema").text();
    const std::string known = schema + "/1";
    if (found != known && found.compare(0, known.size() + 1, known + ".") != 0)
        throw Refusal("its schema is '" + found.substr(0, 60) + "', and this version reads " + known);
    return value;
}

}  // namespace reprise::planner
