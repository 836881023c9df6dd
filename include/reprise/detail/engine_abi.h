/* The only contract between libreprise.so (hooks, allocator, C API entry points; libc alone) and libreprise_engine.so (tracker, policy).
 * libreprise.so opens the engine RTLD_LOCAL at the first segment, hands it the allocator and gets this table; both are built from one
 * tree, and `version` guards against a mixed installation. Also the table that language adapters (python/) use through
 * reprise_adapter_table(): it is not public API and may change with any release. */
#ifndef REPRISE_DETAIL_ENGINE_ABI_H
#define REPRISE_DETAIL_ENGINE_ABI_H

#include "reprise/reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

#define REPRISE_ENGINE_ABI 2u

/* Flags of one scope item. */
#define REPRISE_ITEM_PARAMETER 1u  /* may be watched instead of preserved when large (DESIGN: watch) */
#define REPRISE_ITEM_ARGUMENT 2u   /* an argument of the segment: when it is gone at the replay it is skipped, not a rejection */
#define REPRISE_ITEM_GENERATOR 4u  /* raw state of a generator: listed as such in contracts, never a divergence */
#define REPRISE_ITEM_CONCURRENT 8u /* as REPRISE_TRACK_CONCURRENT; the element size is in bits 8..15 */

typedef struct reprise_scope_item {
    void *address;
    size_t size;
    const char *name; /* copied */
    uint32_t flags;
    uint32_t reserved;
} reprise_scope_item;

/* Options of one forward. */
#define REPRISE_FORWARD_REPLAY_ONLY 1u /* its activations cannot be kept (reentrant torch form): it is replayed whatever the plan is */
/* Begins only what is to be retained, for which no scope is needed; else nothing begins and the status is REPRISE_NOT_FOUND. */
#define REPRISE_FORWARD_RETAINED_ONLY 2u

/* Options of one replay. */
#define REPRISE_REPLAY_GATED \
    1u /* reentrant torch form, first replay: a write to a buffer that the forward did not write and nobody changed is kept */

/* Stages of plan_exchange: ranks of a distributed job that must decide alike (docs/planning.md). */
#define REPRISE_EXCHANGE_JOIN 0u       /* this process is such a rank: it makes no plan alone from here on */
#define REPRISE_EXCHANGE_OFFER 1u      /* replies this rank's measurements once there are some */
#define REPRISE_EXCHANGE_OFFERS 2u     /* takes those of all ranks, by rank */
#define REPRISE_EXCHANGE_COUNTS 3u     /* replies how far this rank has come once the plan is made */
#define REPRISE_EXCHANGE_ALL_COUNTS 4u /* takes those of all ranks; no reply: too late, there will be no plan */
#define REPRISE_EXCHANGE_COMMIT 5u     /* all ranks have taken them: the plan will be followed */

/* How a finished replay went; filled by replay_end for adapters. */
typedef struct reprise_replay_result {
    uint64_t bytes_changed;  /* bytes that differed (or could not be told from differing) when the replay began, and were loaded */
    uint64_t gated_kept;     /* buffers whose write was kept by REPRISE_REPLAY_GATED */
    uint64_t gated_conflict; /* buffers where a gated write met other changes: the caller must reject (remedy: convert) */
    uint64_t stray_bytes;    /* written by the replay though the forward had not: the divergence */
} reprise_replay_result;

typedef struct reprise_engine_table {
    uint32_t abi;
    uint32_t size;
    /* the public functions, same meaning */
    reprise_segment (*segment_begin)(const char *name, uint64_t replay_of);
    reprise_status (*segment_end)(reprise_segment segment);
    reprise_status (*segment_abort)(uint64_t instance);
    reprise_status (*release)(uint64_t instance);
    reprise_status (*step)(void);
    reprise_status (*track)(void *address, size_t size, const char *name, unsigned flags);
    reprise_status (*untrack)(void *address);
    reprise_status (*scope)(const reprise_range *ranges, size_t count);
    reprise_status (*state)(const char *name, reprise_state_save save, reprise_state_load load, void *context);
    reprise_status (*write_intent)(const void *address, size_t size);
    reprise_status (*buffer_info)(const void *address, reprise_buffer *buffer, reprise_range *runs, size_t *run_count);
    reprise_status (*stats)(reprise_statistics *statistics);
    const char *(*last_error)(void);
    /* lifecycle, called by libreprise.so only */
    void (*at_exit)(void);      /* puts back what open replays loaded, flushes records, prints the exit line; returns */
    void (*fork_prepare)(void); /* takes the engine's lock, so that the child's copy is consistent */
    void (*fork_parent)(void);
    void (*fork_child)(void); /* re-opens descriptors, goes single-threaded */
    /* for adapters */
    /* Begins a forward with this scope beside what is declared (what reprise_scope + reprise_segment_begin do, with names and flags), that
     * the adapter will release, with REPRISE_FORWARD_* options. Its action may be REPRISE_RETAIN: then it is over with its end. */
    reprise_segment (*forward_begin)(const char *name, const reprise_scope_item *items, size_t count, uint32_t options);
    /* As segment_begin(name, instance) with REPRISE_REPLAY_* options. */
    reprise_segment (*replay_begin)(const char *name, uint64_t instance, uint32_t options);
    /* As segment_end; writes *result also when the status is REPRISE_DIVERGED. */
    reprise_status (*replay_end)(reprise_segment segment, reprise_replay_result *result);
    /* The ranges D of the open replay `execution`: what differed from F's bytes when it began (so was loaded) or was written by F
     * itself. A tensor that the replay saves for backward and that meets D needs a private copy. Sorted, disjoint; at most `capacity`
     * written, the number there are returned. */
    size_t (*replay_dirty)(uint64_t execution, reprise_range *ranges, size_t capacity);
    /* Adds to instance's contract a generator that the adapter rewinds itself: provider, and a digest made from these bytes. */
    reprise_status (*note_generator)(uint64_t instance, const char *provider, const void *state, size_t size);
    /* A rejection or divergence decided by the adapter (Python state, storage replaced): counted, recorded, said by policy. Returns
     * REPRISE_OK when the policy is to warn (the message has been printed), else the status that the caller must raise. */
    reprise_status (*report)(uint64_t instance, reprise_status kind, const char *message);
    /* 0 off (adapters skip all work), 1 audit (observe, change nothing), 2 protect, 3 protect and plan: forwards may be retained. */
    int (*mode)(void);
    /* What the adapter's side of the instance's replay took: bytes of saved tensors that it had to clone because they alias state that
     * changes before their backward (not 0: such activations can never be kept). */
    reprise_status (*note_replay)(uint64_t instance, uint64_t clone_bytes);
    /* One stage of the ranks' agreement; at optimizer steps only. Never waits. Replies a text, valid until this thread's next call, or
     * NULL: there is none yet, or the texts were not taken. */
    const char *(*plan_exchange)(uint32_t stage, const char *const *texts, const size_t *sizes, size_t count, size_t *reply_size);
} reprise_engine_table;

/* libreprise.so: the engine's table, opening it if needed; NULL when it cannot be opened (reprise_last_error says why). */
REPRISE_API const reprise_engine_table *reprise_adapter_table(uint32_t abi);

/* libreprise.so: 1 when our malloc family is the one the process uses (preloaded or linked first), else 0 (declared ranges only). */
REPRISE_API int reprise_interposed(void);

/* libreprise.so: an adapter says how far it has come, and gets how far any has (level 0 only asks): 1, its code has run in this
 * interpreter, so that nothing has to be scheduled; 2, it has instrumented a framework, so that the process counts as attached. */
REPRISE_API int reprise_attached(int level);

#ifdef __cplusplus
}
#endif
#endif
