#include "tests/planner/profiles.h"

#include <algorithm>
#include <map>
#include <set>

#include "bench/planner_families.h"

namespace reprise::planner::test {

namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kMiB = int64_t{1} << 20;

int64_t up(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::vector<PageRun> random_runs(Random &random, int64_t pages) {
    std::vector<PageRun> out;
    for (int r = 0; r < 1 + random.below(3); r++) {
        auto begin = static_cast<int64_t>(random.below(static_cast<int>(pages)));
        out.push_back({begin, std::min(pages, begin + 1 + random.below(static_cast<int>(pages)))});
    }
    return out;
}

// The pages of a buffer that differ at the replay from the forward: page -> the first write after the forward.
std::map<int64_t, int32_t> changed(const ProfileInstance &it, const ProfileBuffer &buffer) {
    std::map<int64_t, int32_t> out;
    const int64_t pages = up(buffer.bytes) / kPage;
    for (const BufferWrite &write : buffer.writes) {
        if (write.slot < it.forward_begin || write.slot >= it.replay_begin) continue;
        for (PageRun run : write.pages) {
            if (!buffer.selective) run = {0, pages};
            for (int64_t page = std::max<int64_t>(0, run.begin); page < std::min(run.end, pages); page++) {
                auto [at, fresh] = out.try_emplace(page, write.slot);
                if (!fresh) at->second = std::min(at->second, write.slot);
            }
        }
    }
    return out;
}

// Writes before the forward: what names the version that it sees.
int version(const ProfileInstance &it, const ProfileBuffer &buffer) {
    std::set<int32_t> slots;
    const int64_t pages = up(buffer.bytes) / kPage;
    for (const BufferWrite &write : buffer.writes)
        for (const PageRun &run : write.pages)
            if (write.slot < it.forward_begin && run.begin < run.end && run.begin < pages) slots.insert(write.slot);
    return static_cast<int>(slots.size());
}

struct Use {
    const ProfileBuffer *buffer;
    Kind kind;
    std::vector<int32_t> readers;
};

std::vector<int64_t> memory_of(const Profile &profile, const std::vector<uint8_t> &replay, const std::vector<Use> &uses) {
    std::vector<int64_t> out;
    std::set<const ProfileBuffer *> shadows;
    for (const Use &use : uses)
        if (use.kind == Kind::selective && !use.readers.empty()) shadows.insert(use.buffer);
    // Held for a buffer that nobody finds changed, as long as something that uses it is replayed.
    int64_t held = 0;
    for (const ProfileBuffer &buffer : profile.buffers) {
        bool needed = false;
        for (int32_t user : buffer.users) needed = needed || replay[static_cast<size_t>(user)];
        if (needed && !sees_change(profile, buffer)) held += up(buffer.held_bytes);
    }
    for (size_t t = 0; t < profile.base_bytes.size(); t++) {
        auto slot = static_cast<int32_t>(t);
        int64_t bytes = up(profile.base_bytes[t]) + held;
        for (size_t i = 0; i < profile.instances.size(); i++) {
            const ProfileInstance &it = profile.instances[i];
            if (!replay[i] && it.forward_end <= slot && slot < it.replay_end) bytes += up(it.keep_bytes);
            if (replay[i] && it.replay_begin <= slot && slot < it.replay_end) bytes += up(it.transient_bytes);
        }
        for (const ProfileBuffer *buffer : shadows) bytes += up(buffer->bytes);
        for (const Use &use : uses) {
            std::set<int> versions;
            std::set<std::pair<int64_t, int32_t>> images;
            for (int32_t reader : use.readers) {
                const ProfileInstance &it = profile.instances[static_cast<size_t>(reader)];
                const auto pages = changed(it, *use.buffer);
                if (it.forward_begin <= slot && slot < it.replay_end) versions.insert(version(it, *use.buffer));
                for (auto [page, write] : pages)
                    if (write < slot && slot < it.replay_end) images.emplace(page, write);
                if (it.replay_begin <= slot && slot < it.replay_end)
                    bytes += use.kind == Kind::selective ? static_cast<int64_t>(pages.size()) * kPage
                             : pages.empty()             ? 0
                                                         : up(use.buffer->bytes);
            }
            bytes += use.kind == Kind::selective ? static_cast<int64_t>(images.size()) * kPage
                                                 : static_cast<int64_t>(versions.size()) * up(use.buffer->bytes);
        }
        out.push_back(bytes);
    }
    return out;
}

}  // namespace

bool sees_change(const Profile &profile, const ProfileBuffer &buffer) {
    return std::any_of(buffer.users.begin(), buffer.users.end(),
                       [&](int32_t user) { return !changed(profile.instances[static_cast<size_t>(user)], buffer).empty(); });
}

Profile random_profile(uint64_t seed, int forwards, int buffers) {
    Random random(seed);
    Profile out;
    out.run = "1-1";
    out.step = seed;
    out.cycles = 3;
    const int slots = 4 * forwards + 3;
    std::vector<int> done(static_cast<size_t>(forwards), 0);
    std::map<std::string, int32_t> ordinals;
    for (int i = 0; i < forwards; i++) {
        ProfileInstance &it = out.instances.emplace_back();
        it.segment = "segment" + std::to_string(random.below(forwards));
        it.ordinal = ordinals[it.segment]++;
        it.forward_ns = 1000 * (1 + random.below(5000));
        it.replay_ns = it.forward_ns + random.below(5000);
        it.overhead_ns = random.below(20000);
        it.keep_bytes = random.below(64) * kMiB / 4 + random.below(5000);
        it.transient_bytes = it.keep_bytes + random.below(3) * kMiB;
        if (random.below(8) == 0) it.freedom = Freedom::replay, it.why = "nested";
    }
    // The forwards begin in their order, everything else as it comes.
    int begun = 0;
    for (int32_t event = 1; event <= 4 * forwards; event++) {
        std::vector<int> may;
        for (int i = 0; i < forwards; i++)
            if (done[static_cast<size_t>(i)] < 4 && (done[static_cast<size_t>(i)] > 0 || i == begun)) may.push_back(i);
        const int i = may[static_cast<size_t>(random.below(static_cast<int>(may.size())))];
        ProfileInstance &it = out.instances[static_cast<size_t>(i)];
        int32_t *events[] = {&it.forward_begin, &it.forward_end, &it.replay_begin, &it.replay_end};
        if (done[static_cast<size_t>(i)] == 0) begun++;
        *events[done[static_cast<size_t>(i)]++] = event;
    }
    for (int t = 0; t < slots; t++) out.base_bytes.push_back(random.below(32) * kMiB + random.below(9000));
    for (int b = 0; b < 1 + random.below(buffers); b++) {
        ProfileBuffer &buffer = out.buffers.emplace_back();
        buffer.name = "buffer" + std::to_string(b);
        const int64_t pages = random.below(4) == 0 ? 1 + random.below(31) : 32 + random.below(900);
        buffer.bytes = pages * kPage - random.below(4096);
        buffer.selective = random.below(5) != 0;
        for (int i = 0; i < forwards; i++)
            if (random.below(3) != 0) buffer.users.push_back(i);
        buffer.held_bytes = random.below(3) * (buffer.bytes / 2);
        const int writes = random.below(4) == 0 ? 0 : 1 + random.below(4);
        for (int w = 0; w < writes; w++) buffer.writes.push_back({random.below(slots), random_runs(random, pages)});
    }
    return out;
}

Profile transformer_profile(int blocks, int micro_batches) {
    Profile out;
    out.run = "18f0-1";
    out.step = 12;
    out.cycles = 3;
    out.unseen_bytes = 300 * kMiB;
    int32_t event = 1;
    for (int m = 0; m < micro_batches; m++) {
        const size_t first = out.instances.size();
        for (int b = 0; b < blocks; b++) {
            ProfileInstance &it = out.instances.emplace_back();
            it.segment = "blocks." + std::to_string(b);
            it.ordinal = m;
            it.forward_begin = event++;
            it.forward_end = event++;
            it.forward_ns = 3'000'000 + 10'000 * (b % 7);
            it.replay_ns = it.forward_ns + 100'000;
            it.overhead_ns = 20'000;
            it.keep_bytes = (40 + b % 5) * kMiB;
            it.transient_bytes = it.keep_bytes + 4 * kMiB;
        }
        for (int b = blocks - 1; b >= 0; b--) {
            ProfileInstance &it = out.instances[first + static_cast<size_t>(b)];
            it.replay_begin = event++;
            it.replay_end = event++;
        }
    }
    out.base_bytes.assign(static_cast<size_t>(event) + 1, 500 * kMiB);
    ProfileBuffer &queue = out.buffers.emplace_back();
    queue.name = "queue";
    queue.bytes = 64 * kMiB;
    for (size_t i = 0; i < out.instances.size(); i++) {
        queue.users.push_back(static_cast<int32_t>(i));
        const int64_t at = static_cast<int64_t>(i) * 64 % 16000;
        queue.writes.push_back({out.instances[i].forward_end - 1, {{at, at + 64}}});
    }
    for (int b = 0; b < blocks; b++) {
        ProfileBuffer &buffer = out.buffers.emplace_back();
        buffer.name = "blocks." + std::to_string(b) + ".codebook";
        buffer.bytes = 2 * kMiB;
        for (int m = 0; m < micro_batches; m++) {
            const int32_t i = m * blocks + b;
            buffer.users.push_back(i);
            buffer.writes.push_back({out.instances[static_cast<size_t>(i)].forward_end - 1, {{0, b % 2 == 0 ? 512 : 20}}});
        }
    }
    return out;
}

std::vector<int64_t> simulate(const Profile &profile, const JobPlan &plan) {
    std::vector<uint8_t> replay;
    for (const PlannedInstance &it : plan.instances) replay.push_back(it.replay);
    std::vector<Use> uses;
    for (const PlannedWindow &window : plan.windows)
        for (const ProfileBuffer &buffer : profile.buffers)
            if (buffer.name == window.buffer) uses.push_back({&buffer, window.kind, window.readers});
    return memory_of(profile, replay, uses);
}

std::vector<Everything> every_plan(const Profile &profile) {
    std::vector<Everything> out;
    const Problem problem = problem_of(profile, INT64_MAX / 2);  // for the times alone
    auto on_grid = [&](int64_t ns) { return (ns + 999) / 1000 * 1000; };
    const size_t n = problem.instances.size();
    std::vector<const ProfileBuffer *> buffers;
    for (const Window &window : problem.windows) {
        buffers.push_back(nullptr);
        for (const ProfileBuffer &buffer : profile.buffers)
            if (window.name.substr(0, window.name.rfind('.')) == buffer.name) buffers.back() = &buffer;
    }
    for (uint64_t x = 0; x < uint64_t{1} << n; x++) {
        std::vector<uint8_t> replay;
        bool allowed = true;
        int64_t replays = 0;
        for (size_t i = 0; i < n; i++) {
            replay.push_back(x >> i & 1);
            allowed = allowed && (problem.instances[i].freedom != Freedom::replay || replay[i]);
            if (replay[i]) replays += on_grid(problem.instances[i].replay_ns);
        }
        if (!allowed) continue;
        for (uint64_t y = 0; y < uint64_t{1} << problem.windows.size(); y++) {
            Everything one;
            one.added_ns = replays;
            std::vector<Use> uses;
            bool exists = true;
            for (size_t w = 0; w < problem.windows.size() && exists; w++) {
                const Window &window = problem.windows[w];
                const size_t m = y >> w & 1;
                exists = m < window.mechanisms.size();
                if (!exists) break;
                const Mechanism &mechanism = window.mechanisms[m];
                if (buffers[w] == nullptr) continue;  // held, whatever is decided
                Use use{buffers[w], mechanism.kind, {}};
                for (size_t k = 0; k < window.readers.size(); k++) {
                    if (!replay[static_cast<size_t>(window.readers[k])]) continue;
                    use.readers.push_back(window.readers[k]);
                    one.added_ns += on_grid(mechanism.readers[k].ns);
                }
                for (const Element &element : mechanism.elements)
                    if (std::any_of(element.uses.begin(), element.uses.end(),
                                    [&](const auto &it) { return replay[static_cast<size_t>(it.instance)] != 0; }))
                        one.added_ns += on_grid(element.capture_ns);
                uses.push_back(std::move(use));
            }
            if (!exists) continue;
            for (int64_t bytes : memory_of(profile, replay, uses)) one.peak_bytes = std::max(one.peak_bytes, bytes);
            out.push_back(one);
        }
    }
    return out;
}

}  // namespace reprise::planner::test
