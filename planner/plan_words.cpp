// The sentences of a plan: why a segment is kept or replayed, and what keeps the plan from being faster, or from existing.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "planner/plan_job.h"

namespace reprise::planner {

namespace {

constexpr size_t kMostNamed = 3, kMostSentences = 6;

std::string number(double value, const char *unit) {
    char text[64];
    snprintf(text, sizeof text, value >= 100 || value == std::floor(value) ? "%.0f %s" : value >= 10 ? "%.1f %s" : "%.2f %s", value, unit);
    return text;
}

// "'a' 48 MiB, 'b' 32 MiB and 4 more"
template <class Name>
std::string named(const std::vector<std::pair<int64_t, int32_t>> &all, Name name) {
    std::string out;
    for (size_t k = 0; k < all.size() && k < kMostNamed; k++)
        out += (k > 0 ? ", " : "") + name(all[k].second) + " " + size_text(bytes_of(all[k].first));
    if (all.size() > kMostNamed) out += " and " + std::to_string(all.size() - kMostNamed) + " more";
    return out;
}

// What is in a slot, as a sum.
std::string sum_text(const Profile &profile, const JobModel &model, const Contents &in) {
    auto instance = [&](int32_t i) { return name_of(profile, i); };
    auto buffer = [&](int32_t b) { return "'" + profile.buffers[static_cast<size_t>(b)].name + "'"; };
    std::string out = size_text(bytes_of(in.base)) + " of the job's own";
    if (in.kept + in.running > 0)
        out += " + " + size_text(bytes_of(in.kept + in.running)) + " of activations (" + named(in.instances, instance) + ")";
    if (in.preserved > 0) out += " + " + size_text(bytes_of(in.preserved)) + " preserved (" + named(in.buffers, buffer) + ")";
    out += " = " + size_text(bytes_of(in.base + in.kept + in.running + in.preserved));
    return model.problem.budget_pages == 0 ? out : out + " of " + size_text(bytes_of(model.problem.budget_pages));
}

// What would make a plan possible, or a smaller budget.
std::string remedy(const Profile &profile, const Contents &in, int64_t budget_pages) {
    if (in.base > budget_pages && budget_pages > 0)
        return "the job's own memory alone exceeds the budget there: a smaller batch, or a budget of more than " +
               size_text(bytes_of(in.base));
    auto most = [](const std::vector<std::pair<int64_t, int32_t>> &all) { return all.empty() ? 0 : all.front().first; };
    if (most(in.instances) >= most(in.buffers) && !in.instances.empty()) {
        const int32_t i = in.instances.front().second;
        const bool fixed = profile.instances[static_cast<size_t>(i)].freedom == Freedom::retain;
        return fixed ? name_of(profile, i) + " must be kept: letting it be replayed would help most"
                     : "splitting " + name_of(profile, i) + " into smaller segments would help most";
    }
    if (!in.buffers.empty())
        return "buffer '" + profile.buffers[static_cast<size_t>(in.buffers.front().second)].name +
               "' takes most of what is preserved: writing less of it, or outside of the segments' time, would help most";
    return "";
}

}  // namespace

std::string size_text(int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    size_t unit = 0;
    while (unit + 1 < std::size(units) && value >= 1024) value /= 1024, unit++;
    return number(value, units[unit]);
}

std::string time_text(int64_t ns) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    auto value = static_cast<double>(ns);
    size_t unit = 0;
    while (unit + 1 < std::size(units) && value >= 1000) value /= 1000, unit++;
    return number(value, units[unit]);
}

std::string name_of(const Profile &profile, int32_t instance) {
    const ProfileInstance &it = profile.instances[static_cast<size_t>(instance)];
    return "'" + it.segment + "'" + (it.ordinal > 0 ? " (" + std::to_string(it.ordinal) + ")" : "");
}

std::string event_text(const Profile &profile, int32_t slot) {
    std::string out = "event " + std::to_string(slot);
    for (size_t i = 0; i < profile.instances.size(); i++) {
        const ProfileInstance &it = profile.instances[i];
        const char *what = it.forward_begin == slot  ? "the forward of %s has begun"
                           : it.forward_end == slot  ? "the forward of %s has ended"
                           : it.replay_begin == slot ? "the replay of %s has begun"
                           : it.replay_end == slot   ? "the replay of %s has ended"
                                                     : nullptr;
        if (what == nullptr) continue;
        std::string text = what;
        text.replace(text.find("%s"), 2, name_of(profile, static_cast<int32_t>(i)));
        return out + " (" + text + ")";
    }
    return out;
}

Contents contents(const JobModel &model, const Plan &plan, int32_t slot) {
    Contents out;
    auto within = [&](int32_t begin, int32_t end) { return begin <= slot && slot < end; };
    out.base = model.problem.base[static_cast<size_t>(slot)];
    for (size_t i = 0; i < model.problem.instances.size(); i++) {
        const Instance &it = model.problem.instances[i];
        int64_t pages = 0;
        if (!plan.replay[i] && within(it.forward_end, it.replay_end)) out.kept += pages = it.keep_pages;
        if (plan.replay[i] && within(it.replay_begin, it.replay_end)) out.running += pages = it.transient_pages;
        if (pages > 0) out.instances.emplace_back(pages, static_cast<int32_t>(i));
    }
    std::vector<int64_t> of_buffer(model.kept_shadow.size(), 0);
    std::vector<uint8_t> shadow = shadows_used(model, plan);
    for (size_t b = 0; b < shadow.size(); b++)
        if (shadow[b]) of_buffer[b] = model.kept_shadow[b];
    for (size_t w = 0; w < model.problem.windows.size(); w++) {
        const Window &window = model.problem.windows[w];
        const Mechanism &mechanism = window.mechanisms[static_cast<size_t>(plan.mechanism[w])];
        int64_t &pages = of_buffer[static_cast<size_t>(model.buffer_of[w])];
        for (size_t e = mechanism.kind == Kind::selective ? 1 : 0; e < mechanism.elements.size(); e++)
            for (const Use &use : mechanism.elements[e].uses)
                if (plan.replay[static_cast<size_t>(use.instance)] && within(use.begin, use.end)) {
                    pages += mechanism.elements[e].pages;
                    break;
                }
        for (size_t k = 0; k < window.readers.size(); k++) {
            const Instance &it = model.problem.instances[static_cast<size_t>(window.readers[k])];
            if (plan.replay[static_cast<size_t>(window.readers[k])] && within(it.replay_begin, it.replay_end))
                pages += mechanism.readers[k].pages;
        }
    }
    for (size_t b = 0; b < of_buffer.size(); b++)
        if (of_buffer[b] > 0) out.preserved += of_buffer[b], out.buffers.emplace_back(of_buffer[b], static_cast<int32_t>(b));
    auto larger = [](const auto &a, const auto &b) { return a.first != b.first ? a.first > b.first : a.second < b.second; };
    std::sort(out.instances.begin(), out.instances.end(), larger);
    std::sort(out.buffers.begin(), out.buffers.end(), larger);
    return out;
}

void explain_plan(const Profile &profile, const JobModel &model, const Plan &plan, const std::vector<Binding> &binding, JobPlan &out) {
    // Where each instance would be in the way: the binding slot it is alive in with the most weight, else its fullest one.
    auto place = [&](const ProfileInstance &it) {
        for (const Binding &b : binding)
            if (it.forward_end <= b.slot && b.slot < it.replay_end) return b.slot;
        int32_t best = it.forward_end;
        for (int32_t t = it.forward_end; t < it.replay_end; t++)
            if (out.memory_bytes[static_cast<size_t>(t)] > out.memory_bytes[static_cast<size_t>(best)]) best = t;
        return best;
    };
    std::vector<int64_t> loads(profile.instances.size(), 0);
    for (size_t w = 0; w < model.problem.windows.size(); w++) {
        const Window &window = model.problem.windows[w];
        const Mechanism &mechanism = window.mechanisms[static_cast<size_t>(plan.mechanism[w])];
        for (size_t k = 0; k < window.readers.size(); k++) loads[static_cast<size_t>(window.readers[k])] += mechanism.readers[k].ns;
    }
    for (size_t i = 0; i < profile.instances.size(); i++) {
        const ProfileInstance &it = profile.instances[i];
        PlannedInstance &planned = out.instances[i];
        const std::string cost = time_text(planned.replay_ns + loads[i]), size = size_text(it.keep_bytes);
        const std::string reason = it.why.empty() ? "the job leaves no choice" : it.why;
        if (it.freedom == Freedom::replay)
            planned.why = "always replayed: " + reason;
        else if (it.freedom == Freedom::retain)
            planned.why = "always kept: " + reason;
        else if (!planned.replay)
            planned.why =
                (out.verdict == Verdict::planned ? "kept: its " + size + " fit" : "kept: " + size) + ", and a replay would cost " + cost;
        else if (it.keep_bytes == 0)
            planned.why = "replayed: costs " + cost + ", and keeping it would save nothing";
        else
            planned.why = "replayed: costs " + cost + ", saves " + size + " at event " + std::to_string(place(it));
        // A policy that replays everything asked for no reason.
        if (it.freedom == Freedom::open && planned.replay &&
            (out.policy == Policy::whole || out.policy == Policy::selective || out.policy == Policy::fixed))
            planned.why = std::string("replayed: policy ") + policy_name(out.policy) + " replays everything; costs " + cost;
    }
    std::vector<std::pair<int32_t, double>> slots;
    const bool planned = out.verdict == Verdict::planned;
    // Where there is no plan, the event at which the one of least memory needs most; others that bind only if they need about as much.
    if (!planned && !out.memory_bytes.empty()) slots.emplace_back(out.peak_slot, 1.0);
    for (const Binding &b : binding)
        if (planned || (b.slot != out.peak_slot && out.memory_bytes[static_cast<size_t>(b.slot)] >= out.peak_bytes / 100 * 99))
            slots.emplace_back(b.slot, b.weight);
    if (slots.size() > kMostSentences) slots.resize(kMostSentences);
    for (auto [slot, weight] : slots) {
        const Contents in = contents(model, plan, slot);
        std::string text = event_text(profile, slot);
        if (slots.size() > 1 && planned) text += ", " + number(std::floor(weight * 1000 + 0.5) / 10, "%") + " of what binds";
        text += ": " + sum_text(profile, model, in);
        if (!planned)
            if (std::string help = remedy(profile, in, model.problem.budget_pages); !help.empty()) text += "; " + help;
        out.binding.push_back(std::move(text));
    }
}

}  // namespace reprise::planner
