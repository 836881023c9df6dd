// Splits work over the installed ParallelFor. Used by every operation here; the calling thread takes part, so that each call makes
// progress alone even when no worker is free.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace reprise::kernels::detail {

// Pieces of a large range: big enough that handing them out costs nothing, small enough to balance; on 2 MiB boundaries so that two
// threads do not share a huge page.
inline constexpr size_t kPiece = size_t{2} << 20;
// Below this one thread is faster: waking a worker takes tens of microseconds.
inline constexpr size_t kParallelMinimum = size_t{4} << 20;

void run_parallel(size_t count, void (*body)(void *context, size_t index), void *context);

inline bool worth_splitting(size_t bytes) { return bytes >= kParallelMinimum && parallel_workers() > 1; }

// Runs each(offset, size) for pieces of [0, size); pieces end where `anchor + offset` is a multiple of kPiece. `parallel` false: one call.
template <class Each>
void for_pieces(uintptr_t anchor, size_t size, bool parallel, Each each) {
    if (size == 0) return;
    if (!parallel) {
        each(size_t{0}, size);
        return;
    }
    struct Context {
        Each *each;
        uintptr_t first;  // number of the first piece
        uintptr_t begin, end;
    } context{&each, anchor / kPiece, anchor, anchor + size};
    size_t count = (context.end - 1) / kPiece - context.first + 1;
    run_parallel(
        count,
        [](void *opaque, size_t index) {
            auto &c = *static_cast<Context *>(opaque);
            uintptr_t begin = (c.first + index) * kPiece, end = begin + kPiece;
            if (begin < c.begin) begin = c.begin;
            if (end > c.end) end = c.end;
            (*c.each)(begin - c.begin, end - begin);
        },
        &context);
}

// Splits a list of items with a `size` into parts of about equal bytes, found in one walk and without allocating, and runs
// each(item, offset, size) for every part of an item. Items are cut at multiples of kCut from their own start only.
template <class Item, class Each>
void for_list(const Item *items, size_t count, size_t bytes, bool parallel, Each each) {
    if (!parallel) {
        for (size_t i = 0; i < count; i++) each(i, size_t{0}, items[i].size);
        return;
    }
    constexpr size_t kMaxParts = 128, kCut = 4096;
    size_t parts = bytes / (size_t{512} << 10);
    size_t wanted = size_t{8} * parallel_workers();
    if (parts < wanted) wanted = parts;
    if (bytes / kPiece > wanted) wanted = bytes / kPiece;
    parts = wanted > kMaxParts ? kMaxParts : wanted < 1 ? 1 : wanted;

    struct Start {
        size_t item, offset;
    };
    struct Context {
        const Item *items;
        Each *each;
        Start starts[kMaxParts + 1];
    } context;
    context.items = items;
    context.each = &each;
    size_t part = 0, before = 0;
    for (size_t i = 0; i < count; i++) {
        while (part < parts) {
            size_t target = bytes / parts * part;
            if (target >= before + items[i].size) break;
            size_t offset = target > before ? (target - before) / kCut * kCut : 0;
            context.starts[part++] = {i, offset};
        }
        before += items[i].size;
    }
    for (; part <= parts; part++) context.starts[part] = {count, 0};
    run_parallel(
        parts,
        [](void *opaque, size_t index) {
            auto &c = *static_cast<Context *>(opaque);
            Start at = c.starts[index], stop = c.starts[index + 1];
            for (; at.item < stop.item; at.item++, at.offset = 0) {
                size_t size = c.items[at.item].size;
                if (size > at.offset) (*c.each)(at.item, at.offset, size - at.offset);
            }
            if (stop.offset > at.offset) (*c.each)(at.item, at.offset, stop.offset - at.offset);
        },
        &context);
}

}  // namespace reprise::kernels::detail
