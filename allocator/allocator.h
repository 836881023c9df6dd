// The allocator's door: *what is live*. Tracked arenas, the table of small tensors, declared ranges, the page guard, the ledger.
//
// Who calls it. interpose/ calls the placement half (place, resize, release_block, note_*, end_*): from any thread, inside malloc, possibly
// before the constructor has run or after exit handlers have, so nothing behind it allocates from malloc, throws, takes an unbounded lock,
// uses stdio or needs a C++ runtime. tracker/ and policy/ call the observing half through AllocatorPort, at segment boundaries only: they
// live in another shared object (libreprise_engine.so), and the table is what crosses.
//
// Why it is shaped so. Hooks never call upward: a hook only writes these tables, and the tracker reads them at a cut. That is what
// makes re-entrancy and lock order a non-problem. All state is immortal (no destructors), metadata is out of band (own mappings), and a
// block is named by (address, generation), never by a pointer into a table.
#pragma once

#include "allocator/base/types.h"

namespace reprise {

enum class Origin : uint8_t {
    kArena,     // an extent in a tracked arena (128 KiB and more)
    kHeap,      // a small tensor (or a job's own block of 4 KiB and more) that lives with the next allocator; only listed here
    kDeclared,  // a range that somebody declared: numpy, a file mapping, shared memory, a static array
};

struct BlockInfo {
    AddressRange range;  // the bytes that the owner asked for
    Generation generation = 0;
    Origin origin = Origin::kArena;
    bool huge_pages = false;  // lives in the huge-page arena: whole 2 MiB blocks can be armed and disarmed for ~0.1 us each
};

// ---- placement half: for interpose/ ------------------------------------------------------------------------------------------------

// Must be called once before anything else works; safe to call again. Reads REPRISE_ARENA (bytes to reserve; "0": no arenas), RLIMIT_AS and
// overcommit, reserves address space PROT_NONE. Failure leaves every placement returning nullptr: the caller uses the next allocator.
bool allocator_start();
// A block of `size` bytes at `alignment` in a tracked arena, or nullptr (too small: < kSmallBuffer; full; contended; not started).
// Fresh memory reads as zero only if *zeroed is set to true. Never sets errno.
void *place(size_t size, size_t alignment, bool *zeroed);
// True when `address` lies in an arena, whether the block is live or not: such a pointer must never reach the next allocator.
bool in_arena(const void *address);
// The usable size of the live block that begins at `address` (in_arena is true), 0 when there is none.
size_t block_size(const void *address);
// Frees the arena block beginning at `address`; disarms it if it was armed. False when no live block begins there (double free): says
// nothing, the caller decides. Never fails for contention: the block is then put aside and freed by a later call.
bool release_block(void *address);
// Grows or shrinks in place if that is possible: the generation changes when the size does. False: the caller moves it.
bool resize_in_place(void *address, size_t size);

// Blocks that live with the next allocator. `note_heap` after its allocation, `forget_heap` before its free (cheap when `address` was never
// noted: one load when nothing is noted at all, else one entry of a filter). Around realloc: `take_heap` before it (another thread may get
// the old address the moment it is freed), then `note_heap` of the new block, or `restore_heap` when it failed: same generation as before.
struct HeapRecord {
    size_t size = 0;
    Generation generation = 0;  // 0: was not noted
};
void note_heap(const void *address, size_t size);
void forget_heap(const void *address);
HeapRecord take_heap(const void *address);
void restore_heap(const void *address, HeapRecord record);

// Memory in [range) is unmapped, mapped over, moved or dropped (MADV_DONTNEED): ends the generation of every declared range that meets it.
// Arena memory is not affected by this (the job cannot unmap what it did not map; interpose/ refuses nothing and says so once).
void end_mapping(AddressRange range);
// mlockall(MCL_FUTURE) was seen: open arenas in small steps from now on, since every opened page becomes resident.
void note_memory_locked(bool future);

void allocator_fork_prepare();
void allocator_fork_parent();
void allocator_fork_child();

// ---- observing half: for tracker/ and policy/ through the port ----------------------------------------------------------------------

enum class LedgerKind : uint32_t { kTensors, kHeapTensors, kShadows, kImages, kPools, kPresent, kCount };

struct LedgerReading {
    uint64_t live = 0;
    uint64_t peak = 0;
};

// What a guard operation found. kAllDirty: tracking was lost (descriptor closed, remap, EPERM): treat every page as written and arm anew.
enum class GuardResult : int { kOk = 0, kAllDirty = 1, kUnavailable = 2 };

struct GuardCapabilities {
    bool write_protect_async = false;  // userfaultfd WP_ASYNC + PAGEMAP_SCAN, proved by doing it on scratch pages
    bool kernel_writes_seen = false;   // read(2) into an armed page is tracked
    bool hole_seen = false;            // MADV_DONTNEED of an armed huge page is reported as written
    char reason[160] = {};             // why not, with the remedy, when write_protect_async is false
};

// One table of plain functions: it crosses a shared-object boundary. All callable from any thread; none throws or calls malloc.
struct AllocatorPort {
    uint32_t abi;
    uint32_t size;

    // The live block that holds `address`; lock-free, at most two dependent loads for arena blocks. Declared ranges: by declare() below.
    bool (*find)(uintptr_t address, BlockInfo *out);
    // Is the block that had `generation` at `address` still live, unmoved and of the same size?
    bool (*is_live)(uintptr_t address, Generation generation);
    // How many generations have ended so far: while this does not change, whatever was live is live.
    uint64_t (*endings)(Origin origin);
    // Every live arena and heap block, in address order per kind; `visit` returns false to stop. Blocks born or freed meanwhile may be
    // missed.
    void (*for_each)(bool (*visit)(void *context, const BlockInfo *block), void *context);

    // Declares bytes that we did not allocate. Ends by undeclare or by end_mapping. Inside a live block: takes that block's generation
    // (so that its free ends the declaration too). 0 when the table is full.
    Generation (*declare)(AddressRange range);
    void (*undeclare)(uintptr_t address, Generation generation);

    // Page guard. Ranges are whole pages in arenas, or private mappings of the job's (foreign). Arming makes the first write to a page
    // visible to collect. collect(reset=true) reports and re-arms written pages in one atomic step; reset=false only reports.
    // `runs` is filled with at most `capacity` page runs, *count how many; when there are more than fit, call again from the end of the
    // last run.
    void (*guard_probe)(GuardCapabilities *out);
    GuardResult (*guard_arm)(AddressRange pages);
    GuardResult (*guard_disarm)(AddressRange pages);
    GuardResult (*guard_collect)(AddressRange pages, bool reset, AddressRange *runs, size_t capacity, size_t *count);
    // Are these pages backed by unsplit huge pages now? (number of whole 2 MiB blocks of the range that are)
    size_t (*guard_huge_blocks)(AddressRange pages);

    // Ledger: live bytes by kind, and the peak of their sum.
    void (*ledger_add)(LedgerKind kind, int64_t bytes);
    uint64_t (*ledger_live)(LedgerKind kind);
    uint64_t (*ledger_peak)();  // of the sum over all kinds
    uint64_t (*ledger_peak_of)(LedgerKind kind);
    // Bytes that may still be allocated before a cgroup (v1 or v2) or the machine is short of memory; cached for ~10 ms.
    uint64_t (*headroom)();
    // The same from control groups alone; ~0 when none limits this process. A limit is a promise to kill, so it is kept away from further.
    uint64_t (*group_headroom)();
    // Gives back the resident memory of free extents. Called when headroom is short.
    void (*trim)();
    // Live bytes of all kinds, and the most at once since the last call. One caller at a time (the engine, under its mutex).
    LedgerReading (*ledger_take_peak)();

    // Memory of the arenas for the engine itself (images of kSmallBuffer and more), in whole pages, contents undefined; nullptr where there
    // is none. No block lives there: find() and for_each() know nothing of it, and the ledger is the borrower's business. What the job has
    // freed serves us, and what we give back serves the job, so that neither pays for page faults anew.
    void *(*borrow)(size_t size);
    void (*give_back)(void *address);
};
inline constexpr uint32_t kAllocatorPortAbi = 3;

const AllocatorPort *allocator_port();

}  // namespace reprise
