#include "bench/planner_families.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "planner/planner.h"

namespace reprise::planner {

double Random::log_uniform(double low, double high) { return low * std::exp(unit() * std::log(high / low)); }

const char *family_name(int family) {
    static const char *const names[] = {"transformer", "resnet", "moe", "queue", "perseg", "vq", "gradacc", "1f1b", "random"};
    return family >= 0 && family < kFamilies ? names[family] : nullptr;
}

namespace {

constexpr double kMiB = 256;  // pages

int64_t whole(double x) { return static_cast<int64_t>(x); }

// How a buffer is written: each write another part (a ring), always the same pages (hot), or half of each.
enum class Writing { ring, hot, mixed };

struct Buffer {
    std::string name;
    int64_t pages;
    std::vector<int> candidates;  // instances that use it
    std::vector<int> writes;      // slots
    Writing writing;
    double dirty, missed;  // part of it that a write touches; part of that which a prediction misses
};

// Turns a buffer into windows with their mechanisms.
class WindowMaker {
  public:
    WindowMaker(Problem &problem, const Buffer &buffer) : problem_(problem), buffer_(buffer), writes_(buffer.writes) {
        std::sort(writes_.begin(), writes_.end());
        writes_.erase(std::unique(writes_.begin(), writes_.end()), writes_.end());
        dirty_ = std::min(buffer.pages, std::max<int64_t>(1, whole(static_cast<double>(buffer.pages) * buffer.dirty)));
    }

    void make() {
        std::vector<int> readers;
        for (int i : buffer_.candidates)
            if (version(i, true) < version(i, false)) readers.push_back(i);  // written between its forward and its replay
        auto forward = [&](int i) { return problem_.instances[i].forward_begin; };
        std::sort(readers.begin(), readers.end(), [&](int a, int b) { return forward(a) < forward(b); });
        int number = 0;
        for (size_t first = 0; first < readers.size();) {
            size_t last = first + 1;
            int end = problem_.instances[readers[first]].replay_end;
            while (last < readers.size() && forward(readers[last]) < end)
                end = std::max(end, problem_.instances[readers[last++]].replay_end);
            window(std::vector<int>(readers.begin() + static_cast<long>(first), readers.begin() + static_cast<long>(last)), number++);
            first = last;
        }
    }

  private:
    // The number of writes before the instance's forward, or before its replay.
    int version(int i, bool at_forward) const {
        const Instance &it = problem_.instances[i];
        return static_cast<int>(std::lower_bound(writes_.begin(), writes_.end(), at_forward ? it.forward_begin : it.replay_begin) -
                                writes_.begin());
    }

    int64_t differing(int i) const {
        int64_t writes = version(i, false) - version(i, true);
        int64_t pages = buffer_.writing == Writing::ring  ? dirty_ * writes
                        : buffer_.writing == Writing::hot ? dirty_
                                                          : dirty_ / 2 + (dirty_ - dirty_ / 2) * writes;
        return std::min(pages, buffer_.pages);
    }

    void window(const std::vector<int> &readers, int number) {
        Window out;
        out.name = buffer_.name + "." + std::to_string(number);
        out.readers.assign(readers.begin(), readers.end());
        bool small = buffer_.pages < 32;
        out.mechanisms.push_back(copies(readers, small));
        if (!small) {
            out.mechanisms.push_back(shadow(readers));
            out.mechanisms.push_back(predicted(readers));
        }
        problem_.windows.push_back(std::move(out));
    }

    Mechanism copies(const std::vector<int> &readers, bool small) const {
        Mechanism out;
        out.name = small ? "small copy" : "whole copy";
        out.kind = small ? Kind::small : Kind::whole;
        std::vector<Element> versions(writes_.size());
        for (int i : readers)
            versions[version(i, true)].uses.push_back({i, problem_.instances[i].forward_begin, problem_.instances[i].replay_end});
        for (Element &element : versions) {
            if (element.uses.empty()) continue;
            element.pages = buffer_.pages;
            element.capture_ns = buffer_.pages * 190 + 2000;
            out.elements.push_back(element);
        }
        out.readers.assign(readers.size(), {small ? 4000 : 2 * 190 * buffer_.pages, buffer_.pages});
        return out;
    }

    // Pages by the write that first changes them after a forward: one stored copy serves every instance between two overwrites.
    void groups(Mechanism &out, const std::vector<int> &readers, bool from_forward, double over, int64_t ns_per_page,
                double miss_ns) const {
        for (int k = 0; k < static_cast<int>(writes_.size()); k++)
            for (int part = 0; part < (buffer_.writing == Writing::mixed ? 2 : 1); part++) {
                bool hot = buffer_.writing == Writing::hot || part == 1;
                int64_t pages = buffer_.writing == Writing::mixed ? (part ? dirty_ / 2 : dirty_ - dirty_ / 2) : dirty_;
                if (pages == 0) continue;
                Element element;
                element.pages = from_forward ? std::min(buffer_.pages, whole(static_cast<double>(pages) * over) + 1) : pages;
                element.capture_ns = ns_per_page * element.pages + whole(miss_ns * static_cast<double>(pages));
                for (int i : readers) {
                    int before = version(i, true), after = version(i, false);
                    if (k < before || k >= after || (hot && k != before)) continue;
                    const Instance &it = problem_.instances[i];
                    element.uses.push_back({i, from_forward ? it.forward_begin : writes_[k] + 1, it.replay_end});
                }
                if (!element.uses.empty()) out.elements.push_back(std::move(element));
            }
        for (int i : readers) out.readers.push_back({differing(i) * 1000, differing(i)});
    }

    Mechanism shadow(const std::vector<int> &readers) const {
        Mechanism out;
        out.name = "shadow and deltas";
        out.kind = Kind::selective;
        Element &shadow = out.elements.emplace_back();
        shadow.pages = buffer_.pages;
        shadow.capture_ns = buffer_.pages * 190 + buffer_.pages / 2;
        for (int i : readers) shadow.uses.push_back({i, problem_.instances[i].forward_begin, problem_.instances[i].replay_end});
        groups(out, readers, false, 1, 1000, 0);
        return out;
    }

    Mechanism predicted(const std::vector<int> &readers) const {
        Mechanism out;
        out.name = "predicted regions";
        out.kind = Kind::regions;
        groups(out, readers, true, 1.1, 350, buffer_.missed * 30000);
        return out;
    }

    Problem &problem_;
    const Buffer &buffer_;
    std::vector<int> writes_;
    int64_t dirty_;
};

class Maker {
  public:
    Maker(int family, uint64_t seed, int instances, int buffers)
        : family_(family), n_(instances), buffers_(buffers), random_(seed * 1000003ull + static_cast<uint64_t>(family * 7919 + instances)) {
        for (int k = 0; k < 4; k++) random_.next();
        problem_.instances.resize(n_);
    }

    Problem make(double tightness) {
        order();
        for (size_t t = 0; t < events_.size(); t++) {
            Instance &it = problem_.instances[events_[t] / 4];
            int32_t *event[] = {&it.forward_begin, &it.forward_end, &it.replay_begin, &it.replay_end};
            *event[events_[t] % 4] = static_cast<int32_t>(t);
        }
        instances();
        base();
        for (int b = 0, count = family_ == kPerSegment ? n_ : buffers_; b < count; b++) {
            Buffer made = buffer(b);
            WindowMaker(problem_, made).make();
        }
        budget(tightness);
        return std::move(problem_);
    }

  private:
    void forward(int i) { events_.insert(events_.end(), {i * 4, i * 4 + 1}); }
    void backward(int i) { events_.insert(events_.end(), {i * 4 + 2, i * 4 + 3}); }
    void forward_done() { forward_ends_.push_back(static_cast<int>(events_.size()) - 1); }
    bool repeats() const { return family_ == kGradientAccumulation || family_ == kPipeline; }
    int place(int i) const { return repeats() ? i % per_batch_ : i; }

    // The order of events: n_ tokens of 4 * instance + kind.
    void order() {
        per_batch_ = n_;
        if (family_ == kGradientAccumulation) batches_ = 4, per_batch_ = std::max(1, n_ / 4);
        if (family_ == kPipeline) per_batch_ = std::max(1, n_ / 20), batches_ = n_ / per_batch_;
        if (family_ == kRandom) return random_order();
        if (family_ == kPipeline) return pipeline_order();
        for (int m = 0; m < batches_; m++) {
            int low = m * per_batch_, high = m == batches_ - 1 ? n_ : (m + 1) * per_batch_;
            for (int i = low; i < high; i++) forward(i);
            forward_done();
            for (int i = high - 1; i >= low; i--) backward(i);
        }
    }

    // Six micro-batches ahead, then one backward and one forward at a time.
    void pipeline_order() {
        int ahead = std::min(6, batches_);
        auto forwards = [&](int m) {
            for (int j = 0; j < per_batch_; j++) forward(m * per_batch_ + j);
            forward_done();
        };
        for (int m = 0; m < ahead; m++) forwards(m);
        for (int m = 0; m < batches_; m++) {
            for (int j = per_batch_ - 1; j >= 0; j--) backward(m * per_batch_ + j);
            if (m + ahead < batches_) forwards(m + ahead);
        }
        for (int i = batches_ * per_batch_; i < n_; i++) {
            forward(i);
            backward(i);
        }
    }

    void random_order() {
        std::vector<std::pair<double, int>> at;
        for (int i = 0; i < n_; i++) {
            double f = random_.unit() * 100, f_end = f + random_.unit() * 3 / n_ * 30;
            double b = f_end + 0.01 + random_.log_uniform(1, 80), b_end = b + random_.unit() * 2;
            at.insert(at.end(), {{f, i * 4}, {f_end, i * 4 + 1}, {b, i * 4 + 2}, {b_end, i * 4 + 3}});
        }
        std::sort(at.begin(), at.end());
        for (auto &[time, token] : at) events_.push_back(token);
        forward_ends_.push_back(2 * n_);
    }

    void instances() {
        double classes[6][2];
        for (auto &c : classes) {
            c[0] = random_.log_uniform(20, 200) * kMiB;
            c[1] = random_.log_uniform(1e6, 2e7);
        }
        for (int i = 0; i < n_; i++) {
            Instance &it = problem_.instances[i];
            it.name = "segment" + std::to_string(i);
            int j = place(i);
            double noise = 1 + 0.02 * (random_.unit() - 0.5);
            if (family_ == kResnet) {
                int stage = j * 4 / std::max(1, per_batch_);
                double scale = std::pow(0.55, stage);
                it.keep_pages = whole(160 * kMiB * scale * (j % 3 == 0 ? 1.5 : 1));
                it.replay_ns = whole(6e6 * std::pow(0.9, stage) * (j % 3 == 0 ? 1.3 : 1) * noise);
            } else if (family_ == kRandom || family_ == kPerSegment) {
                it.keep_pages = whole(random_.log_uniform(4, 256) * kMiB);
                it.replay_ns = whole(random_.log_uniform(3e5, 4e7));
                // Time in proportion to memory: nothing distinguishes one from the other.
                if (family_ == kPerSegment && random_.unit() < 0.7)
                    it.replay_ns = whole(static_cast<double>(it.keep_pages) * 700.0 * noise);
            } else {
                int c = family_ == kMoe ? j % 3 : family_ == kQueue ? j % 4 : j % 2;
                it.keep_pages = whole(classes[c][0]);
                it.replay_ns = whole(classes[c][1] * noise);
            }
            it.transient_pages = it.keep_pages + it.keep_pages / 16;
        }
    }

    // Parameters, gradients that grow through the backward pass, the running segment's own activations, noise.
    void base() {
        int64_t total = 0, gradients = 0;
        for (const Instance &it : problem_.instances) total += it.keep_pages;
        double part = random_.unit() * 0.5;
        for (int token : events_) {
            const Instance &it = problem_.instances[token / 4];
            int kind = token % 4;
            if (kind == 3) gradients += whole(part * static_cast<double>(it.keep_pages) / batches_);
            problem_.base.push_back(total / 3 + gradients + (kind == 0 ? it.keep_pages : 0) + (kind == 2 ? it.keep_pages / 8 : 0) +
                                    whole(random_.unit() * static_cast<double>(total) * 0.002));
        }
    }

    std::vector<int> users(const std::function<bool(int)> &reads) const {
        std::vector<int> out;
        for (int i = 0; i < n_; i++)
            if (reads(place(i))) out.push_back(i);
        return out;
    }

    void written_in_forward(Buffer &buffer, double part) {
        for (int i : buffer.candidates)
            if (part >= 1 || random_.unit() < part) buffer.writes.push_back(problem_.instances[i].forward_end - 1);
    }

    Buffer buffer(int b) {
        Buffer out;
        out.name = "buffer" + std::to_string(b);
        out.pages = whole(random_.log_uniform(0.5, 64) * kMiB);
        out.writes = forward_ends_;
        out.writing = static_cast<Writing>(random_.below(3));
        out.dirty = random_.log_uniform(0.002, 0.6);
        out.missed = random_.unit() < 0.5 ? 0.0 : random_.unit() * 0.2;
        int low = random_.below(per_batch_), length = 1 + random_.below(std::max(1, per_batch_ / 4)), count = buffers_;
        auto range = [&](int end) { return users([=](int j) { return j >= low && j < end; }); };
        switch (family_) {
            case kTransformer:
                out.candidates = range(low + length);
                break;
            case kResnet:
                if (b < count / 3) out.pages = 8 + random_.below(20);
                out.candidates = users([=](int j) { return j % count == b || (b % 4 == 0 && j % 7 == b % 7); });
                break;
            case kMoe:
                if (b % 4 == 0) out.pages = whole(random_.log_uniform(64, 512) * kMiB);
                out.candidates = users([=](int j) { return j % count == b; });
                written_in_forward(out, 0.3);
                break;
            case kQueue:
                if (b == 0) {
                    out.pages = whole(512 * kMiB);
                    out.writing = Writing::ring;
                    out.dirty = 0.004;
                    out.candidates = users([](int) { return true; });
                } else {
                    out.candidates = range(low + length);
                }
                break;
            case kPerSegment:
                out.pages = whole(random_.log_uniform(0.25, 16) * kMiB);
                out.candidates = users([=](int j) { return j == b; });
                break;
            case kVq:
                out.pages = whole(random_.log_uniform(4, 64) * kMiB);
                out.candidates = users([=](int j) { return j % count == b || j % count == (b + 1) % count; });
                written_in_forward(out, 1);
                break;
            case kGradientAccumulation:
            case kPipeline:
                out.candidates = range(low + 1 + length % 3);
                if (random_.unit() < 0.5) written_in_forward(out, 1);
                break;
            default:
                out.candidates = users([&](int) { return random_.unit() < 0.1; });
                out.writes.clear();
                for (int w = 0, writes = 1 + random_.below(12); w < writes; w++)
                    out.writes.push_back(random_.below(static_cast<int>(events_.size())));
                break;
        }
        return out;
    }

    void budget(double tightness) {
        auto peak = [&](uint8_t replay, int mechanism) {
            Plan plan{std::vector<uint8_t>(n_, replay), {}};
            for (const Window &window : problem_.windows)
                plan.mechanism.push_back(std::min(mechanism, static_cast<int>(window.mechanisms.size()) - 1));
            return evaluate(problem_, plan).value().peak_pages;
        };
        int64_t high = peak(0, 0), low = high;
        for (int m = 0; m < 3; m++) low = std::min(low, peak(1, m));
        problem_.budget_pages = low + whole(static_cast<double>(high - low) * tightness);
    }

    int family_, n_, buffers_;
    Random random_;
    Problem problem_;
    int batches_ = 1, per_batch_ = 0;
    std::vector<int> events_;        // 4 * instance + kind of event
    std::vector<int> forward_ends_;  // events at which a micro-batch's forward ended: where most buffers are written
};

}  // namespace

Problem make_problem(int family, uint64_t seed, int instances, int buffers, double tightness) {
    return Maker(family, seed, instances, buffers).make(tightness);
}

}  // namespace reprise::planner
