#include "planner/profile_json.h"

#include <cinttypes>
#include <map>
#include <new>
#include <utility>

#include "allocator/base/types.h"
#include "planner/json_reading.h"

namespace reprise::planner {

namespace {

using Json = nlohmann::ordered_json;  // what says most stands first

constexpr const char *kSchema = "reprise.profile";
constexpr const char *kDirections[] = {"F", "B"};
constexpr const char *kEnds[] = {"begin", "end"};

void read_events(const Place &events, Profile &out) {
    std::map<std::pair<std::string, int32_t>, size_t> numbers;
    for (size_t i = 0; i < out.instances.size(); i++) numbers[{out.instances[i].segment, out.instances[i].ordinal}] = i;
    for (ProfileInstance &it : out.instances) it.forward_begin = it.forward_end = it.replay_begin = it.replay_end = -1;
    for (size_t k = 0; k < events.size(); k++) {
        const Place event = events.at(k);
        if (event.null()) continue;
        const int direction = event.at(0).word(kDirections, "direction"), end = event.at(3).word(kEnds, "end");
        const auto found = numbers.find({event.at(1).text(), event.at(2).small_number()});
        if (found == numbers.end()) event.refuse("is of no instance");
        ProfileInstance &it = out.instances[found->second];
        int32_t &number = direction == 0 ? (end == 0 ? it.forward_begin : it.forward_end) : (end == 0 ? it.replay_begin : it.replay_end);
        if (number >= 0) event.refuse("has been before, at event " + std::to_string(number));
        number = static_cast<int32_t>(k);
    }
    for (const ProfileInstance &it : out.instances)
        for (int32_t number : {it.forward_begin, it.forward_end, it.replay_begin, it.replay_end})
            if (number < 0) throw Refusal("events: not all four of segment '" + it.segment.substr(0, 80) + "' are there");
}

ProfileBuffer read_buffer(const Place &from) {
    ProfileBuffer out;
    out.name = from.field("name").text();
    out.bytes = from.field("bytes").number();
    if (from.has("selective")) out.selective = from.field("selective").flag();
    if (from.has("held_bytes")) out.held_bytes = from.field("held_bytes").number();
    const Place users = from.field("users"), writes = from.field("writes");
    for (size_t k = 0; k < users.size(); k++) out.users.push_back(users.at(k).small_number());
    for (size_t k = 0; k < writes.size(); k++) {
        BufferWrite &write = out.writes.emplace_back();
        write.slot = writes.at(k).field("slot").small_number();
        const Place pages = writes.at(k).field("pages");
        for (size_t r = 0; r < pages.size(); r++) {
            const Place run = pages.at(r);
            write.pages.push_back({run.at(0).number(), run.at(1).number()});
        }
    }
    return out;
}

Profile read(std::string_view text) {
    const nlohmann::json value = parse_text(text, kSchema);
    const Place from(value, "");
    Profile out;
    out.run = from.field("run").text();
    out.step = static_cast<uint64_t>(from.field("step").number());
    out.cycles = static_cast<uint32_t>(from.field("cycles").number(0, UINT32_MAX));
    if (from.has("unseen_bytes")) out.unseen_bytes = from.field("unseen_bytes").number();
    if (from.has("page_bytes") && from.field("page_bytes").number() != static_cast<int64_t>(kPageSize))
        from.field("page_bytes").refuse("is not " + std::to_string(kPageSize) + ": the profile is of another kind of machine");
    const Place base = from.field("base_bytes"), instances = from.field("instances"), buffers = from.field("buffers");
    for (size_t t = 0; t < base.size(); t++) out.base_bytes.push_back(base.at(t).number());
    for (size_t k = 0; k < instances.size(); k++) {
        const Place entry = instances.at(k);
        ProfileInstance &it = out.instances.emplace_back();
        it.segment = entry.field("segment").text();
        it.ordinal = entry.field("ordinal").small_number();
        it.forward_ns = entry.field("forward_ns").number();
        it.replay_ns = entry.field("replay_ns").number();
        it.overhead_ns = entry.field("overhead_ns").number();
        it.keep_bytes = entry.field("keep_bytes").number();
        if (entry.has("measured_keep_bytes")) it.measured_keep_bytes = entry.field("measured_keep_bytes").number();
        it.transient_bytes = entry.field("transient_bytes").number();
        if (entry.has("freedom")) it.freedom = static_cast<Freedom>(entry.field("freedom").word(kFreedomNames, "freedom"));
        if (entry.has("why")) it.why = entry.field("why").text();
    }
    read_events(from.field("events"), out);
    for (size_t k = 0; k < buffers.size(); k++) out.buffers.push_back(read_buffer(buffers.at(k)));
    const Place costs = from.field("costs");
    for (const auto &[name, member] : kCosts)
        if (costs.has(name)) out.costs.*member = costs.field(name).number();
    return out;
}

}  // namespace

Json events_of(const Profile &profile) {
    Json out = Json::array();
    auto put = [&](int32_t event, const ProfileInstance &it, int direction, int end) {
        if (event < 0) return;
        while (out.size() <= static_cast<size_t>(event)) out.push_back(nullptr);
        out[static_cast<size_t>(event)] = {kDirections[direction], it.segment, it.ordinal, kEnds[end]};
    };
    for (const ProfileInstance &it : profile.instances) {
        put(it.forward_begin, it, 0, 0);
        put(it.forward_end, it, 0, 1);
        put(it.replay_begin, it, 1, 0);
        put(it.replay_end, it, 1, 1);
    }
    return out;
}

std::string write_profile(const Profile &profile) {
    char shape[17];
    snprintf(shape, sizeof shape, "%016" PRIx64, shape_of(profile));
    Json out{{"schema", std::string(kSchema) + "/1"},
             {"run", profile.run},
             {"step", profile.step},
             {"cycles", profile.cycles},
             {"shape", shape},
             {"unseen_bytes", profile.unseen_bytes},
             {"page_bytes", kPageSize},
             {"events", events_of(profile)},
             {"base_bytes", profile.base_bytes}};
    Json instances = Json::array(), buffers = Json::array(), costs = Json::object();
    for (const ProfileInstance &it : profile.instances) {
        instances.push_back({{"segment", it.segment},
                             {"ordinal", it.ordinal},
                             {"forward_ns", it.forward_ns},
                             {"replay_ns", it.replay_ns},
                             {"overhead_ns", it.overhead_ns},
                             {"keep_bytes", it.keep_bytes},
                             {"transient_bytes", it.transient_bytes},
                             {"freedom", kFreedomNames[static_cast<int>(it.freedom)]},
                             {"why", it.why}});
        if (it.measured_keep_bytes != 0) instances.back()["measured_keep_bytes"] = it.measured_keep_bytes;
    }
    for (const ProfileBuffer &buffer : profile.buffers) {
        Json writes = Json::array();
        for (const BufferWrite &write : buffer.writes) {
            Json pages = Json::array();
            for (const PageRun &run : write.pages) pages.push_back({run.begin, run.end});
            writes.push_back({{"slot", write.slot}, {"pages", std::move(pages)}});
        }
        buffers.push_back({{"name", buffer.name},
                           {"bytes", buffer.bytes},
                           {"selective", buffer.selective},
                           {"held_bytes", buffer.held_bytes},
                           {"users", buffer.users},
                           {"writes", std::move(writes)}});
    }
    for (const auto &[name, member] : kCosts) costs[name] = profile.costs.*member;
    out["instances"] = std::move(instances);
    out["buffers"] = std::move(buffers);
    out["costs"] = std::move(costs);
    // Names come from the job: whatever bytes they hold, the text stays readable.
    return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Profile> read_profile(std::string_view text) noexcept {
    try {
        Profile profile = read(text);
        if (Status status = validate(profile); !status.ok()) return status;
        return profile;
    } catch (const std::bad_alloc &) {
        return Status::error(REPRISE_OUT_OF_MEMORY, "there is not enough memory to read the profile");
    } catch (const std::exception &error) {
        return Status::error(REPRISE_INVALID_ARGUMENT, "this is no profile that can be read: %s", error.what());
    }
}

}  // namespace reprise::planner
