#include "interpose/environment.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace reprise {

bool environment_ready() { return environ != nullptr; }

const char *environment(const char *name) {
    if (environ == nullptr || getauxval(AT_SECURE) != 0) return nullptr;
    return getenv(name);
}

bool environment_flag(const char *name) {
    const char *value = environment(name);
    if (value == nullptr) return false;
    return strcmp(value, "1") == 0 || strcmp(value, "yes") == 0 || strcmp(value, "on") == 0 || strcmp(value, "true") == 0;
}

bool glob_match(const char *pattern, const char *pattern_end, const char *text) {
    const char *star = nullptr;  // the last '*' seen, and the text position that it is tried against
    const char *star_text = nullptr;
    for (;;) {
        if (pattern != pattern_end && *pattern == '*') {
            star = ++pattern;
            star_text = text;
        } else if (pattern != pattern_end && *text != '\0' && (*pattern == '?' || *pattern == *text)) {
            ++pattern;
            ++text;
        } else if (pattern == pattern_end && *text == '\0') {
            return true;
        } else if (star != nullptr && *star_text != '\0') {
            pattern = star;
            text = ++star_text;
        } else {
            return false;
        }
    }
}

}  // namespace reprise
