// Can bytes of the job's be read, or written, without a fault? For declared ranges, whose memory is the job's to unmap, protect or cut
// short; tracked blocks are never asked about.
//
// Called by the registry, the replay and the policy, under the engine's mutex, before bytes are touched. The kernel is asked to fault the
// pages in and reports instead of raising a signal (MADV_POPULATE_*, Linux 5.14); where it cannot, the permissions in /proc/self/maps
// decide, which do not show a file that was cut short. What cannot be found out counts as accessible.
#pragma once

#include "allocator/base/types.h"

namespace reprise {

bool readable(AddressRange range);
bool writable(AddressRange range);

}  // namespace reprise
