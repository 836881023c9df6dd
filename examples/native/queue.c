/* The idea of Reprise in one C program, with its two calls and nothing else.
 *
 * A small model is trained by hand. Its "layer" compares a query with every key in a queue and yields one number per key: its
 * activations, which the gradient of the weights needs. Keeping them for a whole step costs memory, so they are dropped after the forward
 * and computed again in the backward. Between the two, new keys are pushed over the oldest ones; the second computation therefore reads
 * other keys than the first, and its gradient is wrong, without any sign of it.
 *
 *     queue --naive                              recompute, just so: wrong
 *     LD_PRELOAD=libreprise.so queue             recompute between reprise_segment_begin and _end: right
 *
 * Both train twice from the same start, first keeping all activations, then recomputing, and compare the two byte by byte. Exit status:
 * 0 the same, 1 not the same, 2 Reprise refused. */
#include <math.h>
#include <reprise/reprise.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kKeys = 16384, kDim = 64, kMicroBatches = 4, kPushed = 128, kSteps = 5 }; /* the queue is 4 MiB, a push 32 KiB */

enum way { kKeep, kRecomputeNaively, kRecomputeWithReprise };

struct model {
    float *queue;    /* kKeys x kDim */
    float *weights;  /* kKeys: what training changes */
    float *gradient; /* kKeys */
    size_t position; /* of the oldest key */
};

struct micro_batch {
    float query[kDim];
    float *activations;      /* NULL when they were dropped */
    reprise_segment segment; /* its forward */
};

static void *allocate(size_t count) {
    void *memory = malloc(count * sizeof(float));
    if (memory == NULL) {
        fprintf(stderr, "queue: no memory for %zu numbers\n", count);
        exit(2);
    }
    return memory;
}

/* The same numbers on every machine: a linear congruential generator, scaled to [-1, 1). */
static float next_number(unsigned *random) {
    *random = *random * 1664525u + 1013904223u;
    return (float)(*random >> 8) / (float)(1 << 23) - 1.0f;
}

/* The layer: activation of key j = tanh(query . key j). */
static float *layer(const struct model *model, const float *query) {
    float *activations = allocate(kKeys);
    for (size_t j = 0; j < kKeys; j++) {
        float dot = 0;
        for (size_t d = 0; d < kDim; d++) dot += query[d] * model->queue[j * kDim + d];
        activations[j] = tanhf(dot);
    }
    return activations;
}

static void push(struct model *model, unsigned *random) {
    for (size_t i = 0; i < kPushed * kDim; i++) model->queue[model->position * kDim + i] = next_number(random);
    model->position = (model->position + kPushed) % kKeys;
}

static void check(reprise_status status, const char *what) {
    if (status == REPRISE_OK) return;
    fprintf(stderr, "queue: Reprise refused %s (status %d)\n", what, (int)status);
    exit(2);
}

static float forward(struct model *model, struct micro_batch *batch, enum way way) {
    if (way == kRecomputeWithReprise) {
        batch->segment = reprise_segment_begin("layer", 0);
        check(batch->segment.status, "the forward");
    }
    batch->activations = layer(model, batch->query);
    if (way == kRecomputeWithReprise) check(reprise_segment_end(batch->segment), "the end of the forward");

    float output = 0;
    for (size_t j = 0; j < kKeys; j++) output += model->weights[j] * batch->activations[j];
    if (way != kKeep) {
        free(batch->activations);
        batch->activations = NULL;
    }
    return output / kKeys;
}

static void backward(struct model *model, struct micro_batch *batch, float output_gradient, enum way way) {
    if (way == kRecomputeNaively) batch->activations = layer(model, batch->query);
    if (way == kRecomputeWithReprise) {
        reprise_segment again = reprise_segment_begin("layer", batch->segment.instance);
        check(again.status, "the replay");
        batch->activations = layer(model, batch->query); /* reads the queue as the forward saw it */
        check(reprise_segment_end(again), "the end of the replay");
    }
    for (size_t j = 0; j < kKeys; j++) model->gradient[j] += output_gradient * batch->activations[j] / kKeys;
    free(batch->activations);
}

static struct model train(enum way way) {
    struct model model = {allocate((size_t)kKeys * kDim), allocate(kKeys), allocate(kKeys), 0};
    unsigned random = 1;
    for (size_t i = 0; i < (size_t)kKeys * kDim; i++) model.queue[i] = next_number(&random);
    for (size_t j = 0; j < kKeys; j++) model.weights[j] = next_number(&random);

    for (int step = 0; step < kSteps; step++) {
        struct micro_batch batches[kMicroBatches];
        float outputs[kMicroBatches];
        memset(model.gradient, 0, kKeys * sizeof(float));
        for (int b = 0; b < kMicroBatches; b++) {
            for (size_t d = 0; d < kDim; d++) batches[b].query[d] = next_number(&random);
            outputs[b] = forward(&model, &batches[b], way);
            push(&model, &random);
        }
        /* The loss is (output - 1)^2, summed; the newest micro-batch goes first, as in any backward pass. */
        for (int b = kMicroBatches - 1; b >= 0; b--) backward(&model, &batches[b], 2 * (outputs[b] - 1), way);
        for (size_t j = 0; j < kKeys; j++) model.weights[j] -= 100 * model.gradient[j];
    }
    return model;
}

static int compare(const char *what, const float *reference, const float *got, size_t count) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)reference[i] - got[i]) * ((double)reference[i] - got[i]);
        norm += (double)reference[i] * reference[i];
    }
    int same = memcmp(reference, got, count * sizeof(float)) == 0;
    printf("  %-14s %s", what, same ? "same bytes\n" : "WRONG");
    if (!same) printf(", off by %.2g %%\n", 100 * sqrt(difference / norm));
    return same;
}

int main(int argc, char **argv) {
    int naive = argc == 2 && strcmp(argv[1], "--naive") == 0;
    if (argc != 1 && !naive) {
        fprintf(stderr, "usage: queue [--naive]\n");
        return 2;
    }
    struct model kept = train(kKeep);
    struct model recomputed = train(naive ? kRecomputeNaively : kRecomputeWithReprise);
    printf("%s, against the run that keeps all activations, after %d steps:\n", naive ? "recomputed naively" : "recomputed with Reprise",
           kSteps);
    int same = compare("last gradient", kept.gradient, recomputed.gradient, kKeys);
    same &= compare("weights", kept.weights, recomputed.weights, kKeys);
    same &= compare("queue", kept.queue, recomputed.queue, (size_t)kKeys * kDim);
    return same ? 0 : 1;
}
