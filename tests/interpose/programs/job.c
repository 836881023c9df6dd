/* A job whose replayed segments read state that changes between forward and replay, with the two calls and nothing else.
 *
 *     job STEPS [retained]    prints what it computed: a digest of the gradients and one of the final state
 *
 * retained: values are kept instead of computed again; what comes out must be the same. Exit status 3: a replay was refused, with the
 * reason. */
#include "check.h"

enum { kWords = 1 << 17, kSmall = 1 << 10, kBatches = 4 }; /* 1 MiB of state, and 8 KiB */

struct model {
    uint64_t *queue, *counts, gradient;
    uint64_t random;
};

static uint64_t next_random(struct model *model) { return model->random = model->random * 6364136223846793005u + 1442695040888963407u; }

static uint64_t mix(uint64_t digest, const uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) digest = (digest ^ words[i]) * 0x100000001b3u;
    return digest;
}

static uint64_t layer(const struct model *model) { return mix(mix(14695981039346656037u, model->queue, kWords), model->counts, kSmall); }

static void change(struct model *model) {
    for (int i = 0; i < 50; i++) model->queue[next_random(model) >> 40 & (kWords - 1)] += 1;
    model->counts[next_random(model) >> 40 & (kSmall - 1)] += 1;
}

int main(int argc, char **argv) {
    const long steps = argc > 1 ? atol(argv[1]) : 3;
    const int retained = argc > 2 && strcmp(argv[2], "retained") == 0;
    struct model model = {calloc(kWords, sizeof(uint64_t)), calloc(kSmall, sizeof(uint64_t)), 0, 1};
    CHECK(model.queue != NULL && model.counts != NULL);
    for (long step = 0; step < steps; step++) {
        uint64_t kept[kBatches];
        reprise_segment forward[kBatches];
        for (int b = 0; b < kBatches; b++) {
            if (!retained) forward[b] = reprise_segment_begin("layer", 0);
            kept[b] = layer(&model);
            if (!retained) CHECK(reprise_segment_end(forward[b]) == REPRISE_OK);
            change(&model);
        }
        for (int b = kBatches - 1; b >= 0; b--) {
            if (!retained) {
                reprise_segment replay = reprise_segment_begin("layer", forward[b].instance);
                if (replay.status != REPRISE_OK) {
                    fprintf(stderr, "job: step %ld: %s\n", step, reprise_last_error());
                    return 3;
                }
                kept[b] = layer(&model);
                CHECK(reprise_segment_end(replay) == REPRISE_OK);
            }
            model.gradient = mix(model.gradient, &kept[b], 1);
            change(&model);
        }
        if (!retained) CHECK(reprise_step() == REPRISE_OK);
    }
    printf("gradients %016llx state %016llx\n", (unsigned long long)model.gradient, (unsigned long long)layer(&model));
    free(model.queue);
    free(model.counts);
    return 0;
}
