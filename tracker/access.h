// Can bytes of the job's be read, or written, without a fault? For declared ranges, whose memory is the job's to unmap, protect or cut
// short; tracked blocks are never asked about.
//
// Called by the registry, the replay and the policy, under the engine's mutex, before bytes are touched. Small ranges: the kernel is asked
// to fault the pages in and reports instead of raising a signal (MADV_POPULATE_*, Linux 5.14). Larger ones: it is asked about the mappings
// and for the last page of each, about 5 us whatever the size. An older kernel's answers are in the text of /proc/self/maps, which does not
// show a file that was cut short. What cannot be found out counts as accessible.
#pragma once

#include "allocator/base/types.h"

namespace reprise {

bool readable(AddressRange range);
bool writable(AddressRange range);

// For tests: behave as on a kernel that answers no question about a mapping (before 6.11).
void access_by_text_for_test(bool yes);

}  // namespace reprise
