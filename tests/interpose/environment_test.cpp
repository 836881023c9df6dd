// Patterns of REPRISE_TRACK.
#include "interpose/environment.h"

#include <gtest/gtest.h>

#include <cstring>

namespace {

bool match(const char *pattern, const char *text) { return reprise::glob_match(pattern, pattern + std::strlen(pattern), text); }

TEST(Glob, Matches) {
    EXPECT_TRUE(match("libc10.so*", "libc10.so"));
    EXPECT_TRUE(match("libc10.so*", "libc10.so.2"));
    EXPECT_TRUE(match("*", ""));
    EXPECT_TRUE(match("a*b*c", "aXbbYc"));
    EXPECT_TRUE(match("a?c", "abc"));
    EXPECT_TRUE(match("", ""));
    EXPECT_TRUE(match("/opt/*/lib*.so", "/opt/torch/lib/libx.so"));
}

TEST(Glob, Refuses) {
    EXPECT_FALSE(match("libc10.so*", "libc10_cuda.so"));
    EXPECT_FALSE(match("libc10.so", "libc10.so.2"));
    EXPECT_FALSE(match("", "a"));
    EXPECT_FALSE(match("a?c", "ac"));
    EXPECT_FALSE(match("a*b", "a"));
    EXPECT_FALSE(match("*b", "abc"));
}

TEST(Glob, UsesThePatternUpToItsEndOnly) {
    const char *list = "liba.so:libb.so";
    EXPECT_TRUE(reprise::glob_match(list, list + 7, "liba.so"));
    EXPECT_FALSE(reprise::glob_match(list, list + 7, "liba.so:libb.so"));
}

}  // namespace
