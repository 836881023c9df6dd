// A profile as it stands: is it whole, what is its shape, which problem does it pose, does a plan belong to it.
#include "planner/profile.h"

#include <algorithm>
#include <cinttypes>
#include <map>
#include <set>

#include "allocator/base/types.h"
#include "planner/plan_job.h"

namespace reprise::planner {

namespace {

// Products of pages and picoseconds stay below 2^62.
constexpr int64_t kMostBytes = int64_t{1} << 44;  // 16 TiB
constexpr int64_t kMostTime = int64_t{1} << 45;   // 9 hours
constexpr int64_t kMostPicoseconds = int64_t{1} << 28;
constexpr int64_t kGrid = 1000;

Status wrong(const char *format, auto... arguments) { return Status::error(REPRISE_INVALID_ARGUMENT, format, arguments...); }

bool within(int64_t value, int64_t most) { return value >= 0 && value <= most; }

Status check_costs(const MechanismCosts &costs) {
    for (const auto &[name, member] : kCosts) {
        const int64_t value = costs.*member;
        if (!within(value, kMostPicoseconds)) return wrong("the measured cost %s is %" PRId64 ": negative or beyond reason", name, value);
    }
    return {};
}

Status check_buffer(const ProfileBuffer &buffer, size_t instances) {
    const char *name = buffer.name.c_str();
    if (!within(buffer.bytes, kMostBytes)) return wrong("buffer '%.80s' has %" PRId64 " bytes", name, buffer.bytes);
    std::set<int32_t> seen;
    for (int32_t user : buffer.users)
        if (user < 0 || static_cast<size_t>(user) >= instances || !seen.insert(user).second)
            return wrong("buffer '%.80s': user %d is no instance, or stands there twice", name, user);
    if (!within(buffer.held_bytes, kMostBytes)) return wrong("buffer '%.80s' holds %" PRId64 " bytes", name, buffer.held_bytes);
    for (const BufferWrite &write : buffer.writes)
        for (const PageRun &run : write.pages)
            if (run.begin < 0 || run.end < run.begin)
                return wrong("buffer '%.80s': a write in slot %d has the pages [%" PRId64 ", %" PRId64 ")", name, write.slot, run.begin,
                             run.end);
    return {};
}

class Shape {
  public:
    void add(uint64_t value) {
        for (int byte = 0; byte < 8; byte++) hash_ = (hash_ ^ (value >> (8 * byte) & 255)) * 1099511628211u;
    }
    void add(const std::string &text) {
        add(text.size());
        for (char c : text) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
    uint64_t value() const { return hash_; }

  private:
    uint64_t hash_ = 14695981039346656037u;
};

}  // namespace

int64_t pages_up(int64_t bytes) { return bytes <= 0 ? 0 : (bytes - 1) / static_cast<int64_t>(kPageSize) + 1; }
int64_t bytes_of(int64_t pages) { return pages * static_cast<int64_t>(kPageSize); }

Status validate(const Profile &profile) {
    auto slots = static_cast<int64_t>(profile.base_bytes.size());
    if (profile.base_bytes.size() > (1u << 24) || profile.instances.size() > (1u << 20) || profile.buffers.size() > (1u << 20))
        return wrong("more events, instances or buffers than the planner's range");
    if (profile.unseen_bytes < 0) return wrong("unseen_bytes is negative");
    for (size_t t = 0; t < profile.base_bytes.size(); t++)
        if (!within(profile.base_bytes[t], kMostBytes))
            return wrong("slot %zu has a base memory of %" PRId64 " bytes", t, profile.base_bytes[t]);
    std::set<std::pair<std::string, int32_t>> keys;
    std::vector<uint8_t> taken(profile.base_bytes.size() + 1);
    for (size_t i = 0; i < profile.instances.size(); i++) {
        const ProfileInstance &it = profile.instances[i];
        const char *name = it.segment.c_str();
        if (it.ordinal < 0 || !keys.emplace(it.segment, it.ordinal).second)
            return wrong("instance %zu: segment '%.80s' has its forward number %d twice, or that number is negative", i, name, it.ordinal);
        if (it.forward_begin < 0 || it.forward_begin >= it.forward_end || it.replay_begin >= it.replay_end ||
            it.forward_begin >= it.replay_begin || it.forward_end >= it.replay_end || it.replay_end > slots)
            return wrong("instance %zu ('%.80s'): its events %d %d %d %d are not in order within %" PRId64 " slots", i, name,
                         it.forward_begin, it.forward_end, it.replay_begin, it.replay_end, slots);
        for (int32_t event : {it.forward_begin, it.forward_end, it.replay_begin, it.replay_end}) {
            if (taken[static_cast<size_t>(event)])
                return wrong("instance %zu ('%.80s'): event %d belongs to two instances", i, name, event);
            taken[static_cast<size_t>(event)] = 1;
        }
        if (!within(it.keep_bytes, kMostBytes) || !within(it.transient_bytes, kMostBytes))
            return wrong("instance %zu ('%.80s'): its bytes are negative or beyond reason", i, name);
        if (!within(it.forward_ns, kMostTime) || !within(it.replay_ns, kMostTime) || !within(it.overhead_ns, kMostTime))
            return wrong("instance %zu ('%.80s'): its times are negative or beyond reason", i, name);
        if (it.freedom > Freedom::replay)
            return wrong("instance %zu ('%.80s'): no freedom has the number %d", i, name, static_cast<int>(it.freedom));
    }
    std::set<std::string> names;
    for (const ProfileBuffer &buffer : profile.buffers) {
        if (!names.insert(buffer.name).second) return wrong("two buffers are called '%.80s'", buffer.name.c_str());
        if (Status status = check_buffer(buffer, profile.instances.size()); !status.ok()) return status;
    }
    return check_costs(profile.costs);
}

uint64_t shape_of(const Profile &profile) {
    Shape shape;
    shape.add(profile.base_bytes.size());
    for (const ProfileInstance &it : profile.instances) {
        shape.add(it.segment);
        for (int32_t number :
             {it.ordinal, it.forward_begin, it.forward_end, it.replay_begin, it.replay_end, static_cast<int32_t>(it.freedom)})
            shape.add(static_cast<uint64_t>(number));
    }
    // Buffers in the order of their names: in which one the job found them says nothing.
    std::vector<const ProfileBuffer *> buffers;
    for (const ProfileBuffer &buffer : profile.buffers) buffers.push_back(&buffer);
    std::sort(buffers.begin(), buffers.end(), [](const ProfileBuffer *a, const ProfileBuffer *b) { return a->name < b->name; });
    for (const ProfileBuffer *buffer : buffers) {
        shape.add(buffer->name);
        shape.add(static_cast<uint64_t>(buffer->bytes));
        std::vector<int32_t> users = buffer->users;
        std::sort(users.begin(), users.end());
        shape.add(users.size());
        for (int32_t user : users) shape.add(static_cast<uint64_t>(user));
    }
    return shape.value();
}

JobModel model_of(const Profile &profile, int64_t budget_bytes) {
    JobModel out;
    Problem &problem = out.problem;
    problem.budget_pages = budget_bytes <= 0 ? 0 : budget_bytes / static_cast<int64_t>(kPageSize);
    problem.grid_ns = kGrid;
    for (int64_t bytes : profile.base_bytes) problem.base.push_back(pages_up(bytes));
    for (const ProfileInstance &it : profile.instances) {
        Instance &instance = problem.instances.emplace_back();
        instance.name = it.segment + "#" + std::to_string(it.ordinal);
        instance.forward_begin = it.forward_begin;
        instance.forward_end = it.forward_end;
        instance.replay_begin = it.replay_begin;
        instance.replay_end = it.replay_end;
        instance.keep_pages = pages_up(it.keep_bytes);
        instance.replay_ns = it.replay_ns + it.overhead_ns;
        instance.transient_pages = pages_up(it.transient_bytes);
        instance.freedom = it.freedom;
    }
    std::map<std::vector<int32_t>, std::pair<size_t, int64_t>> unchanged;  // users -> first buffer, pages
    for (size_t b = 0; b < profile.buffers.size(); b++) {
        const ProfileBuffer &buffer = profile.buffers[b];
        const size_t windows = problem.windows.size();
        BufferHistory history;
        history.name = buffer.name;
        history.pages = pages_up(buffer.bytes);
        for (int32_t user : buffer.users)
            if (user >= 0 && static_cast<size_t>(user) < profile.instances.size()) history.users.push_back(user);
        history.writes = buffer.writes;
        history.selective = buffer.selective;
        history.predictable = false;  // regions are not predicted in a job yet
        if (!buffer.selective)
            for (BufferWrite &write : history.writes)
                if (!write.pages.empty()) write.pages = {{0, history.pages}};
        append_windows(problem.instances, history, profile.costs, problem.windows);
        out.buffer_of.resize(problem.windows.size(), static_cast<int32_t>(b));
        const bool has_shadow = history.selective && history.pages >= profile.costs.small_pages;
        out.kept_shadow.push_back(has_shadow ? history.pages : 0);
        if (problem.windows.size() != windows || buffer.held_bytes <= 0 || history.users.empty()) continue;
        out.kept_shadow.back() = 0;
        std::sort(history.users.begin(), history.users.end());
        unchanged.try_emplace(history.users, b, 0).first->second.second += pages_up(buffer.held_bytes);
    }
    out.unchanged.assign(problem.windows.size(), 0);
    // What is held for buffers that do not change is there as long as anything that uses them may be replayed: no choice, but no constant.
    for (const auto &[users, group] : unchanged) {
        const auto &[first, pages] = group;
        std::vector<int32_t> readers = users;
        auto instance = [&](int32_t i) -> const Instance & { return problem.instances[static_cast<size_t>(i)]; };
        std::sort(readers.begin(), readers.end(),
                  [&](int32_t a, int32_t b) { return instance(a).forward_begin < instance(b).forward_begin; });
        // A window for each stretch in which one of them is outstanding.
        for (size_t begin = 0, number = 0; begin < readers.size(); number++) {
            Window &window = problem.windows.emplace_back();
            window.name = profile.buffers[first].name + ".unchanged." + std::to_string(number);
            Mechanism &held = window.mechanisms.emplace_back();
            held.name = "held, unchanged";
            held.kind = Kind::selective;
            held.elements.push_back({pages, 0, {}});
            int32_t end = instance(readers[begin]).replay_end;
            for (; begin < readers.size() && instance(readers[begin]).forward_begin < end; begin++) {
                const int32_t user = readers[begin];
                end = std::max(end, instance(user).replay_end);
                window.readers.push_back(user);
                held.elements[0].uses.push_back({user, instance(user).forward_begin, instance(user).replay_end});
            }
            held.readers.assign(window.readers.size(), {});
            out.buffer_of.push_back(static_cast<int32_t>(first));
            out.unchanged.push_back(1);
        }
        out.kept_shadow[first] = pages;
    }
    return out;
}

Problem problem_of(const Profile &profile, int64_t budget_bytes) { return model_of(profile, budget_bytes).problem; }

std::vector<std::string> differences(const JobPlan &plan, const Profile &profile, size_t most) {
    std::vector<std::string> out;
    const bool same_forwards =
        std::equal(plan.instances.begin(), plan.instances.end(), profile.instances.begin(), profile.instances.end(),
                   [](const PlannedInstance &a, const ProfileInstance &b) { return a.segment == b.segment && a.ordinal == b.ordinal; });
    if (plan.shape == shape_of(profile) && same_forwards) return out;
    auto forwards = [](uint64_t count) { return std::to_string(count) + (count == 1 ? " forward" : " forwards"); };
    // What the plan has, what the job has.
    std::map<std::string, std::pair<uint64_t, uint64_t>> segments;
    for (const PlannedInstance &it : plan.instances) segments[it.segment].first++;
    for (const ProfileInstance &it : profile.instances) segments[it.segment].second++;
    for (const auto &[name, counts] : segments) {
        auto [planned, ran] = counts;
        if (planned == ran) continue;
        out.push_back(planned == 0 ? "segment '" + name + "' is not in the plan, and ran " + forwards(ran)
                      : ran == 0   ? "segment '" + name + "' is in the plan with " + forwards(planned) + ", and did not run"
                                   : "segment '" + name + "' is in the plan with " + forwards(planned) + ", and ran " + forwards(ran));
    }
    std::map<std::string, int64_t> planned_buffers;
    for (const PlannedWindow &window : plan.windows) planned_buffers[window.buffer] = window.bytes;
    std::set<std::string> known;
    for (const ProfileBuffer &buffer : profile.buffers) {
        known.insert(buffer.name);
        auto it = planned_buffers.find(buffer.name);
        if (it != planned_buffers.end() && it->second != buffer.bytes)
            out.push_back("buffer '" + buffer.name + "' has " + std::to_string(buffer.bytes) + " bytes, and " + std::to_string(it->second) +
                          " in the plan");
    }
    for (const auto &[name, bytes] : planned_buffers)
        if (!known.count(name)) out.push_back("buffer '" + name + "' is in the plan, and no segment of the job uses it");
    if (out.empty())
        for (size_t i = 0; i < plan.instances.size(); i++) {
            const PlannedInstance &a = plan.instances[i];
            const ProfileInstance &b = profile.instances[i];
            if (a.segment == b.segment && a.ordinal == b.ordinal) continue;
            out.push_back("forward " + std::to_string(i) + " of the cycle is one of '" + b.segment + "', and of '" + a.segment +
                          "' in the plan");
            break;
        }
    if (out.empty())
        out.emplace_back(
            "the same segments ran, but their forwards and replays follow each other in another order, or use other buffers, than "
            "when the plan was made");
    if (out.size() > most && most > 0) {
        size_t more = out.size() - (most - 1);
        out.resize(most - 1);
        out.push_back("and " + std::to_string(more) + " more differences");
    }
    return out;
}

}  // namespace reprise::planner
