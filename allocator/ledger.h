// Live bytes by kind, and the peak of their sum.
//
// Added to by the hooks (tensors) and by the tracker (shadows, images, pools), from any thread, without a lock. The peak of the sum is
// exact up to additions that are in flight at the same instant.
#pragma once

#include "allocator/allocator.h"

namespace reprise {

void ledger_add(LedgerKind kind, int64_t bytes);
uint64_t ledger_live(LedgerKind kind);
int64_t ledger_told(LedgerKind kind);  // as it was told; may be a little below zero while additions are saved up (heap_table.h)
uint64_t ledger_peak();
uint64_t ledger_peak_of(LedgerKind kind);
// The most that was live at once, of all kinds together, since this was last called; and begins anew. One caller at a time.
LedgerReading ledger_take_peak();

}  // namespace reprise
