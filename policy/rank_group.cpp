#include "policy/rank_group.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "policy/log.h"

namespace reprise {
namespace {

// Cycles between the agreement and the switch. Ranks that meet in collectives are never more than a cycle or two apart, and the commitment
// of each must have reached every other by then.
constexpr uint64_t kCyclesAhead = 6;

int64_t written_pages(const planner::ProfileBuffer &buffer) {
    int64_t pages = 0;
    for (const planner::BufferWrite &write : buffer.writes) {
        for (const planner::PageRun &run : write.pages) pages += run.end - run.begin;
    }
    return pages;
}

}  // namespace

std::string write_offer(const RankOffer &offer) {
    const nlohmann::json head = {{"order", offer.order}, {"pinned", offer.pinned}, {"budget", offer.budget_bytes}};
    return head.dump() + '\n' + offer.profile;
}

bool read_offer(std::string_view text, RankOffer *offer) {
    const size_t line = text.find('\n');
    if (line == std::string_view::npos) return false;
    const nlohmann::json head = nlohmann::json::parse(text.substr(0, line), nullptr, false);
    if (!head.is_object()) return false;
    for (const char *name : {"order", "pinned", "budget"}) {
        if (!head.contains(name) || !head[name].is_number_unsigned()) return false;
    }
    *offer = {head["order"].get<uint64_t>(), head["pinned"].get<uint64_t>(), head["budget"].get<uint64_t>(),
              std::string(text.substr(line + 1))};
    return true;
}

std::string write_counts(const ForwardCounts &counts) {
    nlohmann::json out = nlohmann::json::object();
    for (const auto &[segment, count] : counts) out[segment] = count;
    return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool read_counts(std::string_view text, ForwardCounts *counts) {
    counts->clear();
    const nlohmann::json in = nlohmann::json::parse(text, nullptr, false);
    if (!in.is_object()) return false;
    for (const auto &[segment, count] : in.items()) {
        if (!count.is_number_unsigned()) return false;
        (*counts)[segment] = count.get<uint64_t>();
    }
    return true;
}

ForwardCounts agree(const std::vector<ForwardCounts> &members, const ForwardCounts &per_cycle) {
    auto count = [](const ForwardCounts &counts, const std::string &segment) {
        auto found = counts.find(segment);
        return found == counts.end() ? uint64_t{0} : found->second;
    };
    ForwardCounts out;
    for (const auto &[segment, period] : per_cycle) {
        if (period == 0) continue;
        const uint64_t base = count(members.front(), segment);
        uint64_t most = base;
        for (const ForwardCounts &member : members) most = std::max(most, count(member, segment));
        const uint64_t cycles = (most - base + period - 1) / period + kCyclesAhead;
        out[segment] = base + cycles * period;
    }
    return out;
}

bool worst_of(const std::vector<planner::Profile> &members, planner::Profile *worst, std::string *why) {
    *worst = members.front();
    for (const planner::Profile &member : members) {
        if (member.base_bytes.size() != worst->base_bytes.size() || member.instances.size() != worst->instances.size()) {
            *why = format("one has %zu events and %zu replays in a cycle, another %zu and %zu", worst->base_bytes.size(),
                          worst->instances.size(), member.base_bytes.size(), member.instances.size());
            return false;
        }
        for (size_t slot = 0; slot < member.base_bytes.size(); ++slot) {
            worst->base_bytes[slot] = std::max(worst->base_bytes[slot], member.base_bytes[slot]);
        }
        for (size_t i = 0; i < member.instances.size(); ++i) {
            planner::ProfileInstance &of = worst->instances[i];
            const planner::ProfileInstance &other = member.instances[i];
            if (of.segment != other.segment || of.ordinal != other.ordinal || of.forward_begin != other.forward_begin ||
                of.replay_begin != other.replay_begin || of.replay_end != other.replay_end) {
                *why = format("forward %zu is one of '%s' here and of '%s' there, or replayed at another time", i, of.segment.c_str(),
                              other.segment.c_str());
                return false;
            }
            of.forward_ns = std::max(of.forward_ns, other.forward_ns);
            of.replay_ns = std::max(of.replay_ns, other.replay_ns);
            of.overhead_ns = std::max(of.overhead_ns, other.overhead_ns);
            of.keep_bytes = std::max(of.keep_bytes, other.keep_bytes);
            of.transient_bytes = std::max(of.transient_bytes, other.transient_bytes);
            if (of.freedom == planner::Freedom::open && other.freedom != planner::Freedom::open)
                of.freedom = other.freedom, of.why = other.why;
        }
        for (const planner::ProfileBuffer &buffer : member.buffers) {
            auto same = std::find_if(worst->buffers.begin(), worst->buffers.end(), [&](const auto &b) { return b.name == buffer.name; });
            if (same == worst->buffers.end()) {
                worst->buffers.push_back(buffer);
                continue;
            }
            same->bytes = std::max(same->bytes, buffer.bytes);
            same->held_bytes = std::max(same->held_bytes, buffer.held_bytes);
            same->selective = same->selective && buffer.selective;
            if (written_pages(buffer) > written_pages(*same)) same->writes = buffer.writes;
        }
        for (int64_t planner::MechanismCosts::*cost : planner::kMeasuredCosts)
            worst->costs.*cost = std::max(worst->costs.*cost, member.costs.*cost);
    }
    return true;
}

}  // namespace reprise
