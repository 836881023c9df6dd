// Named fault points: REPRISE_FAULT=name:nth[,name:nth...] makes the nth pass (1 = first; 0 or nothing = every pass) of that point fail.
//
// Tests of the degraded paths use it; the points stand on cold paths only, and cost one relaxed load of a flag when the variable is unset.
// The variable is read once, by allocator_start(); tests may also set a plan by hand.
#pragma once

#include <atomic>

namespace reprise {

enum class FaultPoint : int {
    kArenaReserve,    // arena_reserve: reserving address space
    kArenaOpen,       // arena_open: making the next step of an arena accessible
    kMetaOpen,        // meta_open: growing a metadata table
    kHeapTable,       // heap_table_full: noting a heap block
    kGuardOpen,       // guard_open: userfaultfd
    kGuardScanEperm,  // guard_scan_eperm: a scan finds its registration gone
    kGuardRegister,   // guard_register: registering a range
    kLock,            // lock_contended: a bounded lock attempt of a hook gives up
    kCount,
};

extern std::atomic<bool> fault_armed;
bool fault_fires(FaultPoint point);      // slow path of fault()
void fault_configure(const char *plan);  // the text of REPRISE_FAULT; nullptr switches all points off

inline bool fault(FaultPoint point) { return __builtin_expect(fault_armed.load(std::memory_order_relaxed), false) && fault_fires(point); }

}  // namespace reprise
