// As importer.c for C++: what `new` gives to code of an importer is the importer's, although malloc is called by the C++ runtime.
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "check.h"
#include "reprise/reprise.hpp"

namespace {

struct alignas(64) Wide {
    char bytes[1 << 20];
};

}  // namespace

int main() {
    const reprise_segment segment = reprise_segment_begin("one", 0);
    CHECK(segment.status == REPRISE_OK && reprise_segment_end(segment) == REPRISE_OK);
    uint64_t instance = 0;
    {
        reprise::Segment forward("two");
        CHECK(forward.ok() && !forward.retain());
        instance = forward.instance();
        reprise::Segment moved(std::move(forward));
        CHECK(forward.end() == REPRISE_OK && moved.end() == REPRISE_OK);
        reprise::Segment again("two", instance);
        CHECK(again.ok());
        static char storage[4096];
        {
            reprise::Tracked tracked(storage, sizeof storage, "storage");
            CHECK(tracked.ok() && is_origin(storage, "declared"));
        }
        CHECK(is_origin(storage, "none"));
    }
    std::vector<float> large(1 << 20), small(2000), tiny(100);
    CHECK(is_origin(large.data(), "arena"));
    CHECK(is_origin(small.data(), "heap"));
    CHECK(is_origin(tiny.data(), "none"));
    large.resize(1 << 21);
    CHECK(is_origin(large.data(), "arena"));
    std::unique_ptr<char[]> array(new char[1 << 20]);
    CHECK(is_origin(array.get(), "arena"));
    std::unique_ptr<char[]> quiet(new (std::nothrow) char[1 << 20]);
    CHECK(is_origin(quiet.get(), "arena"));
    auto wide = std::make_unique<Wide>();
    CHECK(is_origin(wide.get(), "arena") && reinterpret_cast<uintptr_t>(wide.get()) % 64 == 0);
    bool thrown = false;
    try {
        const volatile size_t huge = SIZE_MAX / 2;
        char *volatile never = new char[huge];
        delete[] never;
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
    std::puts("ok");
    return 0;
}
