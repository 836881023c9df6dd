/* Reprise: activation recomputation that sees the state the first pass saw.
 *
 * Two calls do the job; every other call refines it:
 *
 *     reprise_segment seg = reprise_segment_begin("layer3", 0);              a forward
 *     ...
 *     reprise_segment_end(seg);
 *     reprise_segment again = reprise_segment_begin("layer3", seg.instance); its replay
 *     if (again.status == REPRISE_OK) { ...; reprise_segment_end(again); }
 *
 * Between the two calls of a replay, memory in the segment's scope holds the bytes that the forward saw when it began; after the
 * second one it holds again exactly what it held before the first. docs/replay-rule.md says what that means in every corner.
 *
 * Conventions. C11; compiles as C++. Sizes are bytes. Every function may be called from any thread at any time, also from a forked
 * child; none may be called from a signal handler. A function that fails returns a status other than REPRISE_OK, leaves its outputs
 * untouched, and leaves a sentence in reprise_last_error() of the calling thread: what, where, what to do. Status values are append-only.
 * Names are copied; they may be at most REPRISE_NAME_MAX - 1 bytes (longer ones are refused) and should be printable.
 */
#ifndef REPRISE_REPRISE_H
#define REPRISE_REPRISE_H

#include <stddef.h>
#include <stdint.h>

#define REPRISE_VERSION_MAJOR 0
#define REPRISE_VERSION_MINOR 1
#define REPRISE_VERSION_PATCH 0

#if defined(__GNUC__)
#define REPRISE_API __attribute__((visibility("default")))
#define REPRISE_MUST_CHECK __attribute__((warn_unused_result))
#else
#define REPRISE_API
#define REPRISE_MUST_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Longest name of a segment, a buffer or a provider, including the terminating zero. */
#define REPRISE_NAME_MAX 256

typedef enum reprise_status {
    REPRISE_OK = 0,
    REPRISE_INVALID_ARGUMENT = 1, /* a NULL or over-long name, a size of 0, an address range that wraps, an unknown flag */
    REPRISE_UNKNOWN_INSTANCE = 2, /* no such instance: never begun, or not of this segment */
    REPRISE_RELEASED = 3,         /* the instance was released (or its forward aborted): it cannot be replayed any more */
    REPRISE_WRONG_STATE = 4,      /* ended twice, ended out of order, or by another thread than the one that began it */
    REPRISE_REJECTED = 5,         /* the replay cannot be made right: a buffer was freed, reallocated or not preserved */
    REPRISE_DIVERGED = 6,         /* the replay ran, its state was put back, but it wrote what the forward had not written */
    REPRISE_BUSY = 7,             /* another thread's replay holds the same bytes and did not end in time */
    REPRISE_OUT_OF_MEMORY = 8,    /* not enough headroom to preserve what was asked */
    REPRISE_UNAVAILABLE = 9,      /* the engine could not be loaded, or Reprise is switched off: the job runs as without it */
    REPRISE_NOT_FOUND = 10,       /* no tracked buffer at this address, no provider of this name */
    REPRISE_INTERNAL = 11         /* a bug of ours; the message says where */
} reprise_status;

typedef enum reprise_action {
    REPRISE_RETAIN = 0, /* keep this instance's activations: it will not be replayed */
    REPRISE_REPLAY = 1  /* drop them: the instance may be replayed */
} reprise_action;

/* Returned and passed by value. Zero-initialised it is "nothing": ending it is REPRISE_INVALID_ARGUMENT. */
typedef struct reprise_segment {
    uint64_t instance;  /* the forward execution that this is, or replays; 0 when status is not REPRISE_OK */
    uint64_t execution; /* this very F or B; reprise_segment_end checks it, for a B may begin while its own F is still open */
    reprise_action action;
    reprise_status status;
} reprise_segment;

/* Begins a forward (replay_of == 0) or the replay of instance `replay_of` on this thread.
 * A replay whose status is not REPRISE_OK has loaded nothing and must not be run (under REPRISE_ON_REJECT=warn it is REPRISE_OK with a
 * warning); it must not be ended. A forward never fails for want of memory: what cannot be preserved is said when it is replayed.
 * A forward that is neither replayed nor released, in a program that never calls reprise_step, is let go when more than 4,096 younger ones
 * of its segment began. Errors: INVALID_ARGUMENT, UNKNOWN_INSTANCE, RELEASED, REJECTED, BUSY, UNAVAILABLE. */
REPRISE_API reprise_segment reprise_segment_begin(const char *name, uint64_t replay_of);

/* Ends it, on the thread that began it. For a replay the present bytes are put back whatever is returned.
 * Errors: INVALID_ARGUMENT, UNKNOWN_INSTANCE, WRONG_STATE, DIVERGED. */
REPRISE_API reprise_status reprise_segment_end(reprise_segment segment);

/* Puts back whatever open replays of `instance` have loaded, after any that were begun inside them on the same thread and are still open,
 * and forgets the instance. For a host that saw an error first. Any thread. */
REPRISE_API reprise_status reprise_segment_abort(uint64_t instance);

/* No further replays of `instance`: what was preserved for it alone is freed. While a replay of it is open, it takes effect at its end. */
REPRISE_API reprise_status reprise_release(uint64_t instance);

/* A step boundary (an optimizer step): statistics, records and calibration count in these. Optional. */
REPRISE_API reprise_status reprise_step(void);

/* Another thread may write this buffer while a replay has its old bytes loaded; such writes are merged at put-back, element by
 * element. The element size is 1 byte unless REPRISE_TRACK_ELEMENT(n) is or-ed in (1, 2, 4, 8 or 16): merging single bytes of a wider
 * element can invent a value that nobody wrote. */
#define REPRISE_TRACK_CONCURRENT 1u
#define REPRISE_TRACK_ELEMENT(n) (((unsigned)(n)&0xffu) << 8)

/* Declares [address, address + size) as a buffer of every later segment's scope, until reprise_untrack or until the memory goes away.
 * Declaring the same range again renames it; overlapping ranges are allowed (their bytes are kept once per range).
 * The memory must be mapped and readable (else INVALID_ARGUMENT) and must stay so; what changes must be writable again at its replay, which
 * is refused otherwise. REPRISE_TRACK_ELEMENT(n) needs an address and a size that are multiples of n. While anything is declared, scope is
 * what is declared (plus reprise_scope), not what is learned. */
REPRISE_API reprise_status reprise_track(void *address, size_t size, const char *name, unsigned flags);

/* Ends the declaration that begins at `address`. Instances that still need it can no longer be replayed. */
REPRISE_API reprise_status reprise_untrack(void *address);

typedef struct reprise_range {
    void *address;
    size_t size;
} reprise_range;

/* The scope of the next reprise_segment_begin(name, 0) on this thread: these ranges, beside what reprise_track declared, and nothing that
 * is learned. count == 0: only what is declared. */
REPRISE_API reprise_status reprise_scope(const reprise_range *ranges, size_t count);

/* A provider of host state that is not plain memory (a generator behind an API). `save` writes at most `capacity` bytes to `into` and
 * returns how many it needed (more than `capacity`: it is called again with that much; SIZE_MAX: failed); `load` sets the state from
 * those bytes and returns 0, else the replay is rejected. Both run on the thread that begins, ends or aborts the segment, with no lock of
 * Reprise held, and must not call reprise_segment_*. Both NULL: the provider is removed. */
typedef size_t (*reprise_state_save)(void *context, void *into, size_t capacity);
typedef int (*reprise_state_load)(void *context, const void *from, size_t size);
REPRISE_API reprise_status reprise_state(const char *name, reprise_state_save save, reprise_state_load load, void *context);

/* These bytes are about to be written by the caller: their before-images are taken now, exactly, and no page fault is needed. */
REPRISE_API reprise_status reprise_write_intent(const void *address, size_t size);

typedef struct reprise_buffer {
    void *address;
    size_t size;
    uint64_t generation; /* changes when the address is reused */
    uint64_t version;    /* rises at a cut when the buffer was written since the one before */
    char name[REPRISE_NAME_MAX];
    char mechanism[16]; /* "small", "whole", "shadow", "watch", "none": how it is preserved now */
} reprise_buffer;

/* About the buffer that holds `address`. `runs` receives at most *run_count dirty runs (written since the last cut, or changed where
 * the source can only compare), *run_count how many there are; runs may be NULL with run_count NULL. Error: NOT_FOUND. */
REPRISE_API reprise_status reprise_buffer_info(const void *address, reprise_buffer *buffer, reprise_range *runs, size_t *run_count);

typedef struct reprise_statistics {
    size_t struct_size; /* set it to sizeof(reprise_statistics) before the call; fields beyond it are not written */
    uint64_t forwards, replays, replays_on_changed_state, rejections, divergences;
    uint64_t instances_outstanding, steps;
    uint64_t bytes_preserved;  /* copied at forwards: before-images, shadow updates, whole and small copies */
    uint64_t bytes_first_fill; /* of these, the first fill of shadows and pools */
    uint64_t bytes_loaded, bytes_put_back;
    uint64_t bytes_held, bytes_held_peak;             /* before-images, shadows and pools now, and at most */
    uint64_t bytes_tracked, bytes_tracked_peak;       /* live tensors in tracked arenas */
    uint64_t nanoseconds_forward, nanoseconds_replay; /* spent in Reprise, not in the segments */
} reprise_statistics;

REPRISE_API reprise_status reprise_stats(reprise_statistics *statistics);

/* The calling thread's last failure as one sentence; "" when there was none. Valid until this thread's next call. */
REPRISE_API const char *reprise_last_error(void);

/* The loaded library's version as "major.minor.patch". */
REPRISE_API const char *reprise_version(void);

#ifdef __cplusplus
}
#endif
#endif
