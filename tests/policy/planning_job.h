// A simulated job for tests of planning: blocks of tracked memory as activations, buffers that change, one of three schedules. Its forwards
// remember what they saw in plain copies of their own, and every replay is compared with that: the naive oracle. Its time is simulated, too
// (virtual_clock.h): work takes what the shape says, with noise, now and then a lot of it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "planner/plan_json.h"
#include "policy/text_file.h"
#include "tests/effort.h"
#include "tests/policy/engine_fixture.h"
#include "tests/policy/virtual_clock.h"

namespace reprise::test {

// The real port; what the engine is told about the ledger's peak is kept here, too (it is told everything, since each reading begins where
// the one before ended).
class WatchedPort {
  public:
    static const AllocatorPort &get() {
        static AllocatorPort port = [] {
            allocator_start();
            AllocatorPort made = *allocator_port();
            made.ledger_take_peak = [] {
                const LedgerReading now = allocator_port()->ledger_take_peak();
                peak = std::max(peak, now.peak);
                return now;
            };
            // Preserving takes time: an image of so many bytes, a range that is armed.
            made.ledger_add = [](LedgerKind kind, int64_t bytes) {
                allocator_port()->ledger_add(kind, bytes);
                if (bytes > 0 && kind != LedgerKind::kPools) VirtualClock::pass(static_cast<uint64_t>(bytes) / 8);
            };
            made.guard_arm = [](AddressRange pages) {
                VirtualClock::pass(pages.size() / kPageSize * 20);
                return allocator_port()->guard_arm(pages);
            };
            return made;
        }();
        return port;
    }
    static uint64_t live() {
        uint64_t sum = 0;
        for (uint32_t kind = 0; kind < static_cast<uint32_t>(LedgerKind::kCount); ++kind)
            sum += get().ledger_live(static_cast<LedgerKind>(kind));
        return sum;
    }
    static void forget_peak() {
        (void)get().ledger_take_peak();
        peak = 0;
    }
    static inline uint64_t peak = 0;
};

class Folder {
  public:
    Folder() {
        std::string name = std::filesystem::temp_directory_path() / "reprise-planning-XXXXXX";
        path_ = mkdtemp(name.data());
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::string operator/(const std::string &name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

// Of everything random in a simulated job: where it writes, how long it works. REPRISE_TEST_SEED=n tries another.
inline uint64_t planning_seed() {
    static const uint64_t seed = [] {
        const char *given = std::getenv("REPRISE_TEST_SEED");
        const uint64_t value = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
        printf("REPRISE_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
        return value;
    }();
    return seed;
}

enum class Order { kStack, kAccumulated, kInterleaved };

struct JobShape {
    int segments = 8;
    size_t keep = 1 << 20;  // of each, and a quarter more for each third one
    std::vector<size_t> buffers = {300 << 10, 2 << 20, 1000, 64 << 10};
    Order order = Order::kStack;
    bool shared = true;  // every segment reads two buffers, most of which others read as well; else one of its own
    bool steps = true;
    bool releases = true;  // says when an instance is done
    uint64_t seed = planning_seed();
    size_t lingers = 0;      // bytes that a replay still holds at its end, and lets go right after it
    size_t result = 0;       // bytes of a forward's result: let go right after it where its activations are not kept, of which it is one
    bool wanders = false;    // each cycle writes elsewhere than the one before
    uint64_t work_us = 150;  // in each forward and each replay
    double noise = 0.2;      // of that, and in one of fifty ten times as much
};

class SimulatedJob {
  public:
    SimulatedJob(Config config, const JobShape &shape)
        : shape_(shape), random_(shape.seed), noise_(shape.seed + 1), driver_(WatchedPort::get(), std::move(config)) {
        for (size_t size : shape.buffers) buffers_.emplace_back(size);
    }

    // One cycle, with this many segments (as many as the shape has, if not given).
    void cycle(int segments = -1) {
        const int count = segments < 0 ? shape_.segments : segments;
        std::vector<int> order(static_cast<size_t>(count));
        for (int i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
        cycle_of(order);
    }
    void cycle_of(const std::vector<int> &order) {
        const auto count = static_cast<int>(order.size());
        switch (shape_.order) {
            case Order::kAccumulated:
                stack(order);
                stack(order);
                break;
            case Order::kInterleaved:
                for (int i = 0; i < count + 2; ++i) {
                    if (i < count) forward(order[static_cast<size_t>(i)]);
                    if (i >= 2) backward(order[static_cast<size_t>(i - 2)]);
                }
                break;
            case Order::kStack:
                stack(order);
                break;
        }
        step();
    }
    void step() {
        ++cycles;
        if (!shape_.wanders) random_ = shape_.seed;
        if (!shape_.steps) return;
        EXPECT_TRUE(driver_->step().ok());
    }

    void stack(const std::vector<int> &order) {
        for (int i : order) forward(i);
        for (size_t i = order.size(); i-- > 0;) backward(order[i]);
    }

    static std::string name_of(int i) { return "segment " + std::to_string(i); }
    size_t keep_of(int i) const { return shape_.keep + (i % 3 == 2 ? shape_.keep / 4 : 0); }
    std::vector<size_t> used_by(int i) const {
        const size_t n = buffers_.size();
        if (n == 0) return {};
        if (!shape_.shared) return {static_cast<size_t>(i) % n};
        const size_t first = static_cast<size_t>(i) % n, second = (static_cast<size_t>(i) * 7 + 1) % n;
        if (first == second) return {first};
        return {first, second};
    }

    void forward(int i) {
        Open open;
        open.segment = i;
        for (size_t b : used_by(i)) open.saw.push_back(buffers_[b].bytes());
        const reprise_segment f = driver_.forward(name_of(i).c_str(), scope_of(i));
        ASSERT_EQ(f.status, REPRISE_OK) << thread_state().error;
        open.instance = f.instance;
        open.retained = f.action == REPRISE_RETAIN;
        (open.retained ? retained : replayed) += 1;
        if (open.retained) retained_names.insert(name_of(i));
        run(i, open.kept);
        inside(i);
        std::unique_ptr<Block> result;
        if (!open.retained && shape_.result != 0) result = std::make_unique<Block>(shape_.result);
        if (!open.retained) open.kept.reset();
        ASSERT_EQ(driver_.end(f), REPRISE_OK);
        result.reset();
        open_.push_back(std::move(open));
        between(i);
    }
    // All of them change in every forward, a little.
    static void write_all(SimulatedJob &job, int i) {
        for (Block &block : job.buffers_) {
            const size_t size = std::max<size_t>(1, block.size() / 32);
            memset(block.data() + size * (static_cast<size_t>(i) % 30), job.cycles + i, size);
        }
    }
    // Of the youngest forward of this segment.
    void backward(int i) {
        auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open &o) { return o.segment == i; });
        ASSERT_NE(found, open_.rend());
        Open open = std::move(*found);
        open_.erase(std::next(found).base());
        if (open.retained) return;
        std::vector<std::vector<uint8_t>> present;
        for (size_t b : used_by(i)) present.push_back(buffers_[b].bytes());
        const reprise_segment b = driver_.replay(name_of(i).c_str(), open.instance);
        ASSERT_EQ(b.status, REPRISE_OK) << thread_state().error;
        size_t at = 0;
        for (size_t u : used_by(i)) {
            const std::vector<uint8_t> &saw = open.saw[at++];
            if (memcmp(saw.data(), buffers_[u].data(), saw.size()) != 0) ++wrong_bytes;
        }
        run(i, open.kept);
        inside(i);
        {
            const std::unique_ptr<Block> lingering = shape_.lingers == 0 ? nullptr : std::make_unique<Block>(shape_.lingers);
            ASSERT_EQ(driver_.end(b), REPRISE_OK) << thread_state().error;
        }
        at = 0;
        for (size_t u : used_by(i)) {
            const std::vector<uint8_t> &was = present[at++];
            if (memcmp(was.data(), buffers_[u].data(), was.size()) != 0) ++wrong_after;
        }
        ASSERT_TRUE(!shape_.releases || driver_->release(open.instance).ok());
    }
    // Without a replay.
    void drop_all() {
        for (const Open &open : open_) EXPECT_TRUE(open.retained || driver_->release(open.instance).ok());
        open_.clear();
    }

    Driver &driver() { return driver_; }
    std::vector<Block> &buffers() { return buffers_; }
    std::vector<reprise_range> scope_of(int i) const {
        std::vector<reprise_range> scope;
        for (size_t b : used_by(i)) scope.push_back(buffers_[b].range());
        return scope;
    }

    // What the job writes after a forward: by default part of one buffer, all of it now and then.
    std::function<void(SimulatedJob &, int)> writes = [](SimulatedJob &job, int i) { job.write_some(i); };
    std::function<void()> works = [] {};  // in each forward and each replay
    void write_some(int i) {
        if (buffers_.empty() || i % 2 != 0) return;
        Block &block = buffers_[(static_cast<size_t>(i) / 2) % buffers_.size()];
        const size_t size = i % 8 == 6 ? block.size() : std::max<size_t>(1, block.size() / 16);
        const size_t at = next_random(random_) % (block.size() - size + 1);
        memset(block.data() + at, static_cast<int>(next_random(random_)) + cycles, size);
    }

    int cycles = 0;
    uint64_t retained = 0, replayed = 0, wrong_bytes = 0, wrong_after = 0;
    std::set<std::string> retained_names;

  private:
    struct Open {
        int segment = 0;
        uint64_t instance = 0;
        bool retained = false;
        std::vector<std::vector<uint8_t>> saw;
        std::unique_ptr<Block> kept;
    };

    // Makes the activations, for which it needs half as much again.
    void run(int i, std::unique_ptr<Block> &kept) {
        kept = std::make_unique<Block>(keep_of(i));
        const Block scratch(keep_of(i) / 2);
        memset(kept->data(), i, kept->size());
        const uint64_t roll = next_random(noise_) % 1000;
        const double noise = 1 + shape_.noise * static_cast<double>(roll) / 1000 + (roll < 20 ? 10 * shape_.noise : 0);
        works();
        VirtualClock::pass(static_cast<uint64_t>(static_cast<double>(shape_.work_us * 1000 + keep_of(i) / 16) * noise));
    }
    // Every fourth segment writes a little of what it reads, in the forward and in its replay: the same bytes from what it sees.
    void inside(int i) {
        if (i % 4 != 1 || buffers_.empty()) return;
        Block &block = buffers_[used_by(i).front()];
        block.data()[block.size() / 2] = static_cast<uint8_t>(block.data()[block.size() / 2] * 5 + 3);
    }
    void between(int i) { writes(*this, i); }

    const VirtualClock clock_;
    JobShape shape_;
    uint64_t random_, noise_;
    std::vector<Block> buffers_;
    Driver driver_;
    std::vector<Open> open_;
};

inline Config planning(Policy policy, uint64_t budget, const std::string &save = "", const std::string &records = "") {
    Config config = quiet(policy);
    config.budget.bytes = budget;
    config.save_plan = save;
    config.records = records;
    return config;
}

inline bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

// Stops waiting after so many real seconds: what it waits for does not come.
class Patience {
  public:
    bool over() const { return std::chrono::steady_clock::now() > until_; }

  private:
    const std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::now() + std::chrono::seconds(by_build(90, 120, 200));
};

// Runs cycles until `done`. The planner's thread needs the processor, too.
template <class Done>
bool run_until(SimulatedJob &job, Done done, const std::function<void()> &cycle = {}) {
    const Patience patience;
    for (int i = 0; i < 6 || !patience.over(); ++i) {
        cycle ? cycle() : job.cycle();
        if (testing::Test::HasFatalFailure()) return false;
        if (done()) return true;
        usleep(500);
    }
    return false;
}

inline planner::JobPlan plan_in(const std::string &path) {
    std::string text, why;
    EXPECT_TRUE(read_text_file(path, &text, &why)) << path << ": " << why;
    auto plan = planner::read_plan(text);
    EXPECT_TRUE(plan.ok()) << plan.status().text();
    return plan.ok() ? std::move(plan.value()) : planner::JobPlan{};
}

// Runs until the plan is not made again any more.
inline bool run_until_settled(SimulatedJob &job, const std::string &plan) {
    std::string text, why, now;
    int same = 0;
    return run_until(job, [&] {
        if (!exists(plan) || !read_text_file(plan, &now, &why)) return false;
        same = now == text ? same + 1 : 0;
        text = now;
        return same >= 6;
    });
}

inline std::vector<nlohmann::json> lines_of(const std::string &path, const std::string &schema = "") {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
        EXPECT_FALSE(json.is_discarded()) << line.substr(0, 200);
        if (schema.empty() || json.value("schema", "") == schema) lines.push_back(std::move(json));
    }
    return lines;
}

// The numbers of this job: what retaining everything takes, and the least.
struct Limits {
    uint64_t retained = 0, smallest = 0;
    // Between the two, with the engine's margin.
    uint64_t budget(double share) const {
        const auto wanted = static_cast<uint64_t>(static_cast<double>(smallest) + share * static_cast<double>(retained - smallest));
        return wanted + wanted / 500 + (uint64_t{5} << 18);
    }
};

inline Limits limits_of(const JobShape &shape, const std::function<void(SimulatedJob &, int)> &writes = {}) {
    const Folder folder;
    Limits limits;
    {
        SimulatedJob job(planning(Policy::kJoint, 1 << 20, folder / "least"), shape);
        if (writes) job.writes = writes;
        EXPECT_TRUE(run_until(job, [&] { return exists(folder / "least"); }));
        limits.smallest = static_cast<uint64_t>(plan_in(folder / "least").smallest_bytes);
        limits.retained = static_cast<uint64_t>(plan_in(folder / "least").retained_bytes);
    }
    EXPECT_GT(limits.retained, limits.smallest);
    return limits;
}

}  // namespace reprise::test
