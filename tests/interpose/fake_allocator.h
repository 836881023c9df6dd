// Stands behind allocator/allocator.h in interpose_test: keeps a log of what the ring told it, in order with the fake real functions.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

struct FakeWorld {
    std::vector<std::string> log;
    std::map<void *, size_t> placed;
    std::map<const void *, size_t> noted;
    bool can_place = true;
    bool can_resize = false;
    bool zeroed = false;
};
extern FakeWorld g_world;
