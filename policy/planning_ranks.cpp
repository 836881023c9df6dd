// The plan of a rank: made from what all ranks measured, switched to at an agreed forward.
#include <algorithm>

#include "planner/profile_json.h"
#include "policy/log.h"
#include "policy/planning.h"

namespace reprise {

void Planning::join_group() {
    if (grouped_) return;
    grouped_ = true;
    // What was decided alone is not what the others decide.
    if (adopted_) measure_again("this process is a rank of a distributed job now");
    worker_.reset();
}

void Planning::offer(planner::Profile profile, std::string text) {
    RankOffer offer;
    offer.order = worker_order_;
    offer.pinned = offered_pinned_;
    offer.budget_bytes = budget_;
    offer.profile = std::move(text);
    own_profile_ = std::move(profile);
    offer_ = write_offer(offer);
}

// The texts of all ranks, in their order.
bool Planning::read_offers(const std::vector<std::string_view> &texts) {
    RankOffer mine;
    if (!read_offer(offer_, &mine)) return false;
    members_.clear();
    PlanRequest request;
    request.profile.run = own_profile_.run;
    request.profile.step = own_profile_.step;
    bool same_pinned = mine.pinned != 0;
    for (size_t rank = 0; rank < texts.size(); ++rank) {
        RankOffer theirs;
        if (!read_offer(texts[rank], &theirs)) {
            log_line(LogLevel::kError,
                     format("the measurements of rank %zu cannot be read: no plan is made, all segments are replayed", rank));
            return false;
        }
        if (theirs.order != mine.order) continue;  // it runs other segments: a stage of its own
        members_.push_back(rank);
        same_pinned = same_pinned && theirs.pinned == mine.pinned;
        request.members.push_back(std::move(theirs.profile));
        budget_ = std::min(budget_, theirs.budget_bytes);
    }
    log_line(LogLevel::kInfo, format("%zu of %zu ranks run the same segments as this one and plan with it", members_.size(), texts.size()));
    if (same_pinned && pinned_) {
        follows_pinned_ = true;
        adopt(std::move(*pinned_), std::move(own_profile_), mine.order);
        pinned_.reset();
        return true;
    }
    if (mine.pinned != 0) {
        log_line(LogLevel::kError,
                 format("REPRISE_PLAN=%s does not fit all ranks, or is not the same on all: they make a plan of their own",
                        config_.plan.c_str()));
        pinned_.reset();
    }
    send(std::move(request), mine.order);
    return true;
}

// My counts of forwards at the beginning of a cycle, once the plan is made.
std::string Planning::planned_counts() {
    if (!adopted_ || !group_switch_.empty() || !cycle_->empty()) return {};
    return write_counts(forwards_);
}

bool Planning::read_planned_counts(const std::vector<std::string_view> &texts) {
    if (!adopted_) return false;
    std::vector<ForwardCounts> counts;
    for (size_t member : members_) {
        if (member >= texts.size() || !read_counts(texts[member], &counts.emplace_back())) return false;
    }
    group_switch_ = agree(counts, per_cycle_);
    // Counted on while the texts travelled: whoever has passed the place already must not switch, so nobody may.
    return std::all_of(group_switch_.begin(), group_switch_.end(),
                       [&](const auto &entry) { return forwards_[entry.first] < entry.second; });
}

// -1: this forward is replayed.
int32_t Planning::planned_in_group(const std::string &segment) const {
    if (!committed_ || !adopted_) return -1;
    auto at = group_switch_.find(segment);
    auto so_far = forwards_.find(segment);
    const uint64_t number = so_far == forwards_.end() ? 0 : so_far->second;
    if (at == group_switch_.end() || number < at->second) return -1;
    const uint64_t ordinal = (number - at->second) % per_cycle_.at(segment);
    return adopted_->find(segment, static_cast<int32_t>(ordinal));
}

std::string Planning::exchange(uint32_t stage, const std::vector<std::string_view> &texts) {
    const std::string kAccepted = "ok";
    switch (stage) {
        case REPRISE_EXCHANGE_JOIN:
            join_group();
            return kAccepted;
        case REPRISE_EXCHANGE_OFFER:
            return offer_;
        case REPRISE_EXCHANGE_OFFERS:
            return read_offers(texts) ? kAccepted : std::string();
        case REPRISE_EXCHANGE_COUNTS:
            return planned_counts();
        case REPRISE_EXCHANGE_ALL_COUNTS:
            return read_planned_counts(texts) ? kAccepted : std::string();
        case REPRISE_EXCHANGE_COMMIT:
            // In time for every segment, or not at all.
            committed_ = std::all_of(group_switch_.begin(), group_switch_.end(),
                                     [&](const auto &entry) { return forwards_[entry.first] <= entry.second; });
            if (!committed_)
                log_line(LogLevel::kError, "the ranks agreed too late on when to switch to the plan: all segments are replayed");
            return committed_ ? kAccepted : std::string();
        default:
            return {};
    }
}

}  // namespace reprise
