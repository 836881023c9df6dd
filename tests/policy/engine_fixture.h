// An Engine on the real allocator, and blocks of tracked memory that free themselves.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "allocator/allocator.h"
#include "policy/engine.h"
#include "policy/log.h"
#include "tests/random.h"

namespace reprise::test {

inline Config quiet(Policy policy = Policy::kSelective) {
    Config config;
    config.policy = policy;
    config.log = LogLevel::kOff;
    return config;
}

// The C API's vocabulary on an Engine object, so that a test can have several, each with its own configuration.
class Driver {
  public:
    explicit Driver(Config config) : Driver(*allocator_port(), std::move(config)) {}
    Driver(const AllocatorPort &port, Config config) {
        allocator_start();
        log_start(config.log);
        engine_ = std::make_unique<Engine>(port, std::move(config));
    }
    Engine *operator->() { return engine_.get(); }
    Engine &operator*() { return *engine_; }

    reprise_segment forward(const char *name, const std::vector<reprise_range> &scope) {
        EXPECT_TRUE(engine_->scope(scope.data(), scope.size()).ok());
        return engine_->forward_begin(name, nullptr, 0, false);
    }
    reprise_segment replay(const char *name, uint64_t instance, uint32_t options = 0) {
        return engine_->replay_begin(name, instance, options);
    }
    reprise_status end(reprise_segment segment, reprise_replay_result *result = nullptr) {
        return engine_->segment_end(segment, result).code();
    }
    reprise_statistics stats() {
        reprise_statistics s{};
        s.struct_size = sizeof s;
        EXPECT_TRUE(engine_->stats(&s).ok());
        return s;
    }

  private:
    std::unique_ptr<Engine> engine_;
};

// Tracked memory: in the arena from 128 KiB on (what a hook would do), else from malloc and noted.
class Block {
  public:
    explicit Block(size_t size) : size_(size) {
        allocator_start();
        bool zeroed = false;
        if (size >= kSmallBuffer) data_ = static_cast<uint8_t *>(place(size, 64, &zeroed));
        if (data_ == nullptr) {
            data_ = static_cast<uint8_t *>(std::aligned_alloc(64, (size + 63) / 64 * 64));
            note_heap(data_, size);
            heap_ = true;
        }
        std::memset(data_, 0, size);
    }
    Block(Block &&other) noexcept { *this = std::move(other); }
    Block &operator=(Block &&other) noexcept {
        if (this != &other) {
            reset();
            data_ = std::exchange(other.data_, nullptr);
            size_ = other.size_;
            heap_ = other.heap_;
        }
        return *this;
    }
    ~Block() { reset(); }
    void reset() {
        if (data_ == nullptr) return;
        if (heap_) {
            forget_heap(data_);
            std::free(data_);
        } else {
            release_block(data_);
        }
        data_ = nullptr;
    }

    uint8_t *data() const { return data_; }
    size_t size() const { return size_; }
    reprise_range range() const { return {data_, size_}; }
    std::vector<uint8_t> bytes() const { return {data_, data_ + size_}; }

  private:
    uint8_t *data_ = nullptr;
    size_t size_ = 0;
    bool heap_ = false;
};

}  // namespace reprise::test
