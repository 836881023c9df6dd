#include "cli/html.h"

#include "cli/text.h"

namespace reprise::cli {

std::string html(const std::string &text) { return escape_html(printable(text)); }

void card(std::string &out, const std::string &value, const std::string &what, bool bad) {
    out += std::string("<div class=\"card") + (bad ? " bad" : "") + "\"><b>" + value + "</b><span>" + what + "</span></div>\n";
}

void head_row(std::string &out, const std::vector<std::pair<const char *, bool>> &columns) {
    out += "<thead><tr>";
    for (const auto &[title, number] : columns)
        out += std::string("<th") + (number ? " class=\"n\"" : "") + "><button>" + title + "</button></th>";
    out += "</tr></thead><tbody>\n";
}

std::string number_cell(int64_t value, const std::string &shown, bool bad) {
    return format("<td class=\"n%s\" data-v=\"%lld\">", bad ? " bad" : "", static_cast<long long>(value)) + shown + "</td>";
}

std::string filter_box(const char *id, const char *what) {
    return format("<input class=\"filter\" data-table=\"%s\" type=\"search\" placeholder=\"%s\" aria-label=\"filter\">\n", id, what);
}

std::string escape_html(const std::string &text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '"':
                result += "&quot;";
                break;
            case '\'':
                result += "&#39;";
                break;
            default:
                result += c;
        }
    }
    return result;
}

}  // namespace reprise::cli
