#include "allocator/headroom.h"

#include <string.h>

#include <atomic>

#include "allocator/base/sys.h"

namespace reprise {
namespace {

constexpr uint64_t kUnlimited = ~uint64_t{0};
constexpr uint64_t kKeepNs = 10'000'000;

// A path built in place; over-long ones become unreadable instead of wrong.
class Path {
  public:
    Path &operator<<(const char *text) {
        const size_t length = strlen(text);
        if (used_ + length + 1 > sizeof text_) {
            broken_ = true;
            return *this;
        }
        memcpy(text_ + used_, text, length + 1);
        used_ += length;
        return *this;
    }
    size_t length() const { return used_; }
    void cut(size_t length) {
        used_ = length;
        text_[length] = '\0';
    }
    // Removes the last component behind `floor`; false when there is none.
    bool up(size_t floor) {
        if (used_ <= floor) return false;
        while (used_ > floor && text_[used_ - 1] != '/') --used_;
        cut(used_ > floor ? used_ - 1 : floor);
        return true;
    }
    const char *c_str() const { return broken_ ? "" : text_; }

  private:
    char text_[1024] = {};
    size_t used_ = 0;
    bool broken_ = false;
};

bool digit(char c) { return c >= '0' && c <= '9'; }

// The number behind "key" at the start of a line (or at the very start when key is ""); false when absent or "max".
bool number_after(const char *text, const char *key, uint64_t *value) {
    const size_t length = strlen(key);
    for (const char *line = text; line != nullptr && *line != '\0';) {
        if (strncmp(line, key, length) == 0) {
            const char *at = line + length;
            while (*at == ' ' || *at == '\t') ++at;
            if (digit(*at)) {
                uint64_t v = 0;
                for (; digit(*at); ++at) {
                    if (v > (kUnlimited - 9) / 10) return false;
                    v = v * 10 + static_cast<uint64_t>(*at - '0');
                }
                *value = v;
                return true;
            }
        }
        line = strchr(line, '\n');
        if (line != nullptr) ++line;
    }
    return false;
}

bool read_number(Path &directory, const char *file, const char *key, uint64_t *value) {
    char text[8192];
    const size_t length = directory.length();
    directory << "/" << file;
    const bool ok = sys::read_file(directory.c_str(), text, sizeof text) > 0 && number_after(text, key, value);
    directory.cut(length);
    return ok;
}

struct Files {
    const char *limit, *second_limit, *usage, *inactive, *active;
};
constexpr Files kV1{"memory.limit_in_bytes", nullptr, "memory.usage_in_bytes", "total_inactive_file ", "total_active_file "};
constexpr Files kV2{"memory.max", "memory.high", "memory.current", "inactive_file ", "active_file "};

// What one group still allows.
uint64_t group_room(Path &directory, const Files &files) {
    uint64_t limit = kUnlimited, other = kUnlimited, usage = 0;
    read_number(directory, files.limit, "", &limit);
    if (files.second_limit != nullptr && read_number(directory, files.second_limit, "", &other) && other < limit) limit = other;
    if (limit >= uint64_t{1} << 62 || !read_number(directory, files.usage, "", &usage)) return kUnlimited;
    // The page cache goes before anybody is killed; half of its active part is assumed to be wanted, as the kernel does for MemAvailable.
    uint64_t inactive = 0, active = 0;
    read_number(directory, "memory.stat", files.inactive, &inactive);
    read_number(directory, "memory.stat", files.active, &active);
    const uint64_t cache = inactive + active / 2;
    usage = usage > cache ? usage - cache : 0;
    return limit > usage ? limit - usage : 0;
}

// The least that the group `group` below `mount` and all its ancestors allow.
uint64_t hierarchy_room(const char *root, const char *mount, const char *group, const Files &files) {
    Path directory;
    directory << root << mount;
    const size_t floor = directory.length();
    if (strcmp(group, "/") != 0) directory << group;
    uint64_t least = kUnlimited;
    do {
        // In a container the path may not exist below its own mount; then its ancestors do, the mount's root at the latest.
        const uint64_t room = group_room(directory, files);
        if (room < least) least = room;
    } while (directory.up(floor));
    return least;
}

}  // namespace

Headroom headroom_parts_below(const char *root) {
    char text[16384];
    Headroom room{kUnlimited, kUnlimited};
    Path path;
    path << root << "/proc/meminfo";
    uint64_t kib = 0;
    if (sys::read_file(path.c_str(), text, sizeof text) > 0 && number_after(text, "MemAvailable:", &kib)) room.machine = kib * 1024;
    path.cut(0);
    path << root << "/proc/self/cgroup";
    if (sys::read_file(path.c_str(), text, sizeof text) <= 0) return room;
    for (char *line = text; line != nullptr && *line != '\0';) {
        char *next = strchr(line, '\n');
        if (next != nullptr) *next++ = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers == nullptr ? nullptr : strchr(controllers + 1, ':');
        if (group != nullptr) {
            *group++ = '\0';
            ++controllers;
            uint64_t least = kUnlimited;
            if (*controllers == '\0') {
                least = hierarchy_room(root, "/sys/fs/cgroup", group, kV2);
                const uint64_t hybrid = hierarchy_room(root, "/sys/fs/cgroup/unified", group, kV2);
                if (hybrid < least) least = hybrid;
            } else {
                for (const char *c = controllers; c != nullptr;) {
                    const size_t length = strcspn(c, ",");
                    if (length == 6 && strncmp(c, "memory", 6) == 0) least = hierarchy_room(root, "/sys/fs/cgroup/memory", group, kV1);
                    c = c[length] == ',' ? c + length + 1 : nullptr;
                }
            }
            if (least < room.group) room.group = least;
        }
        line = next;
    }
    return room;
}

uint64_t headroom_below(const char *root) {
    const Headroom room = headroom_parts_below(root);
    return room.machine < room.group ? room.machine : room.group;
}

namespace {
constinit std::atomic<uint64_t> valid_until{0};
}  // namespace

void headroom_changed() { valid_until.store(0, std::memory_order_release); }

Headroom headroom_parts() {
    static constinit std::atomic<uint64_t> machine{0}, group{0};
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    const uint64_t now = static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
    if (now < valid_until.load(std::memory_order_acquire)) {
        return {machine.load(std::memory_order_relaxed), group.load(std::memory_order_relaxed)};
    }
    const Headroom fresh = headroom_parts_below("");
    machine.store(fresh.machine, std::memory_order_relaxed);
    group.store(fresh.group, std::memory_order_relaxed);
    valid_until.store(now + kKeepNs, std::memory_order_release);
    return fresh;
}

uint64_t headroom() {
    const Headroom room = headroom_parts();
    return room.machine < room.group ? room.machine : room.group;
}

uint64_t group_headroom() { return headroom_parts().group; }

}  // namespace reprise
