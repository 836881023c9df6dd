// The tracker's door: *what changed*. Buffers and their versions, dirty sources, preserved bytes, and the load and put-back of a replay.
//
// Who calls it. policy/ alone, under the engine's one mutex: nothing here locks. It runs at segment boundaries, never inside a hook; it
// reads the allocator's tables through AllocatorPort, because the allocator lives in another shared object (libreprise.so).
//
// How it is shaped. A Buffer is one range of bytes with a generation; its Mechanism preserves it:
//
//     capture(v)        F begins: the bytes as they are become version v
//     forward_ended(v)  F ended: what F itself wrote is remembered
//     changed(v)        B begins: D, the pieces whose bytes are not (or may not be) those of v, each with its image
//     strays(v)         B ends: what was written outside D
//     release(v)        nobody needs v any more
//
// and Replay drives all buffers of a scope through one replay: save the present of every piece, load the images, and afterwards put the
// present back. Load and put-back are ordinary writes to every mechanism, so a forward nested in a replay captures what it sees.
// docs/tracking.md explains versions and before-images with pictures.
#pragma once

#include "tracker/buffer.h"
#include "tracker/buffer_registry.h"
#include "tracker/dirty_source.h"
#include "tracker/image_pool.h"
#include "tracker/mechanism.h"
#include "tracker/replay.h"
