// A dirty source: says which pages were written since it was last reset. One interface, several ways (tests/tracker runs one conformance
// suite over all of them). Called under the engine's mutex.
//
// A source may report more pages than were written, never fewer: what it cannot know it reports as written.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "allocator/allocator.h"

namespace reprise {

class DirtySource {
  public:
    virtual ~DirtySource() = default;

    virtual const char *name() const = 0;
    // A write that leaves the bytes as they were: seen (a page fault), or not (a comparison)?
    virtual bool sees_writes_without_effect() const = 0;

    // Starts watching whole pages; they count as clean from now on. False: this source cannot watch them.
    virtual bool start(AddressRange pages) = 0;
    // Stops: writes cost nothing any more. Pages stopped inside a watched range count as written until the next reset.
    virtual void stop(AddressRange pages) = 0;

    // Appends the parts of `pages` written since the last reset, ascending and page-granular. `reference` points at the
    // copy, taken at that reset, of the first byte of `pages` that lies in `bytes` (the part that may be read); sources that see writes
    // ignore it. False: the source lost track (a closed descriptor, a remapping): everything in `pages` counts as written and is no longer
    // watched.
    virtual bool collect(AddressRange pages, AddressRange bytes, const std::byte *reference, bool reset,
                         std::vector<AddressRange> &written) = 0;
};

// userfaultfd WP_ASYNC with PAGEMAP_SCAN get+reset, through the allocator's page guard. Null when the probe says that it does not work
// here.
std::unique_ptr<DirtySource> make_write_protect_source(const AllocatorPort &port);
// Comparison with a reference copy: works everywhere, at 40-70 ms/GiB.
std::unique_ptr<DirtySource> make_compare_source();

}  // namespace reprise
