/* Things that happen to memory between a forward and its replay, or inside the replay, in a program with the real engine.
 *
 *     window remap | realloc | fork | thread | close        prints "ok"; what failed goes to stderr */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

enum { LARGE = 1 << 20 };

static reprise_segment forward(void) {
    reprise_segment segment = reprise_segment_begin("window", 0);
    CHECK(segment.status == REPRISE_OK);
    CHECK(reprise_segment_end(segment) == REPRISE_OK);
    return segment;
}
static reprise_segment replay(reprise_segment of) { return reprise_segment_begin("window", of.instance); }
static int said(const char *part) { return strstr(reprise_last_error(), part) != NULL; }

static char *map_at(void *address) {
    char *memory = mmap(address, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (address != NULL ? MAP_FIXED : 0), -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}
static int all(const char *memory, char value) {
    for (size_t i = 0; i < LARGE; i += 512) {
        if (memory[i] != value) return 0;
    }
    return 1;
}

/* A declared mapping is unmapped and its address given out again: whoever has it now must not see the old bytes. */
static void remap(void) {
    char *queue = map_at(NULL), *other = malloc(LARGE);
    memset(queue, 1, LARGE), memset(other, 1, LARGE);
    CHECK(reprise_track(queue, LARGE, "queue", 0) == REPRISE_OK && reprise_track(other, LARGE, "other", 0) == REPRISE_OK);
    reprise_segment f = forward();
    memset(other, 2, LARGE);
    CHECK(munmap(queue, LARGE) == 0);
    CHECK(map_at(queue) == queue);
    memset(queue, 9, LARGE);
    CHECK(replay(f).status == REPRISE_REJECTED && said("'queue'"));
    CHECK(all(queue, 9) && all(other, 2));
    CHECK(reprise_release(f.instance) == REPRISE_OK);

    CHECK(reprise_track(queue, LARGE, "queue", 0) == REPRISE_OK); /* the new one */
    f = forward();
    memset(queue, 3, LARGE), memset(other, 3, LARGE);
    reprise_segment b = replay(f);
    CHECK(b.status == REPRISE_OK && all(queue, 9) && all(other, 2));
    CHECK(map_at(queue) == queue); /* over it, inside the replay */
    memset(queue, 5, LARGE);
    CHECK(reprise_segment_end(b) == REPRISE_OK);
    CHECK(all(queue, 5) && all(other, 3));

    CHECK(reprise_track(queue, LARGE, "queue", 0) == REPRISE_OK);
    f = forward();
    char *moved = mremap(queue, LARGE, 2 * LARGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    CHECK(replay(f).status == REPRISE_REJECTED && said("'queue'"));
    CHECK(all(moved, 5));
}

/* Grown, shrunk and moved blocks are other generations. */
static void reallocated(void) {
    for (int inside = 0; inside < 2; inside++) {
        for (int grow = 0; grow < 2; grow++) {
            char *queue = malloc(LARGE), *other = malloc(LARGE);
            memset(queue, 1, LARGE), memset(other, 1, LARGE);
            CHECK(reprise_track(queue, LARGE, "queue", 0) == REPRISE_OK && reprise_track(other, LARGE, "other", 0) == REPRISE_OK);
            reprise_segment f = forward(), b = {0};
            memset(other, 2, LARGE);
            memset(queue, 2, LARGE);
            if (inside) {
                b = replay(f);
                CHECK(b.status == REPRISE_OK && all(queue, 1) && all(other, 1));
            }
            char *old = queue;
            queue = realloc(queue, grow ? 8 * LARGE : LARGE + 1 - 4096 * 100);
            CHECK(queue != NULL);
            memset(queue, 7, LARGE / 2);
            if (inside) {
                CHECK(reprise_segment_end(b) == REPRISE_OK);
            } else {
                CHECK(replay(f).status == REPRISE_REJECTED && said("'queue'") && said("reallocated"));
            }
            CHECK(queue[0] == 7 && queue[LARGE / 2 - 1] == 7 && all(other, 2));
            CHECK(reprise_release(f.instance) == REPRISE_OK);
            CHECK(reprise_untrack(old) != REPRISE_INTERNAL && reprise_untrack(other) == REPRISE_OK);
            free(queue), free(other);
        }
    }
}

/* The child of a fork inside a window replays its own copy; the parent's is not touched. */
static void forked(void) {
    char *queue = malloc(LARGE), *small = malloc(8192);
    memset(queue, 1, LARGE), memset(small, 1, 8192);
    reprise_segment f = forward();
    memset(queue, 2, LARGE), memset(small, 2, 8192);
    for (int inside = 0; inside < 2; inside++) {
        reprise_segment outer = {0};
        if (inside) {
            outer = replay(f);
            CHECK(outer.status == REPRISE_OK && all(queue, 1));
        }
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            if (inside) CHECK(reprise_segment_end(outer) == REPRISE_OK);
            CHECK(all(queue, 2) && small[1] == 2);
            queue[5000] = 3;
            reprise_segment b = replay(f);
            CHECK(b.status == REPRISE_OK && all(queue, 1) && queue[5000] == 1 && small[1] == 1);
            CHECK(reprise_segment_end(b) == REPRISE_OK);
            CHECK(queue[0] == 2 && queue[5000] == 3 && small[1] == 2);
            f = forward();
            queue[0] = 4;
            b = replay(f);
            CHECK(b.status == REPRISE_OK && queue[0] == 2 && queue[5000] == 3);
            CHECK(reprise_segment_end(b) == REPRISE_OK && queue[0] == 4);
            exit(0);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        if (inside) {
            CHECK(all(queue, 1) && reprise_segment_end(outer) == REPRISE_OK);
        }
        CHECK(all(queue, 2) && small[1] == 2);
    }
    reprise_segment b = replay(f);
    CHECK(b.status == REPRISE_OK && all(queue, 1) && reprise_segment_end(b) == REPRISE_OK && all(queue, 2));
}

/* Memory and forwards of a thread that has ended. */
static char *of_thread[2];
static reprise_segment thread_forward;
static void *thread(void *unused) {
    (void)unused;
    of_thread[0] = malloc(LARGE), of_thread[1] = malloc(8192);
    memset(of_thread[0], 1, LARGE), memset(of_thread[1], 1, 8192);
    thread_forward = forward();
    return NULL;
}
static void threads(void) {
    for (int round = 0; round < 20; round++) {
        pthread_t id;
        CHECK(pthread_create(&id, NULL, thread, NULL) == 0 && pthread_join(id, NULL) == 0);
        memset(of_thread[0], 2, LARGE), memset(of_thread[1], 2, 8192);
        reprise_segment b = replay(thread_forward);
        CHECK(b.status == REPRISE_OK && all(of_thread[0], 1) && of_thread[1][8191] == 1);
        CHECK(reprise_segment_end(b) == REPRISE_OK);
        CHECK(all(of_thread[0], 2) && of_thread[1][8191] == 2);
        CHECK(reprise_release(thread_forward.instance) == REPRISE_OK);
        free(of_thread[0]), free(of_thread[1]);
    }
}

/* A program that closes every descriptor that it does not know, as daemons do, and one that puts its own over them. */
static void closed(void) {
    char *queue = malloc(4 * LARGE);
    for (int how = 0; how < 3; how++) {
        memset(queue, 1, LARGE);
        reprise_segment f = forward();
        queue[0] = 2;
        if (how == 0) CHECK(syscall(SYS_close_range, 3, ~0u, 0) == 0);
        if (how == 1) {
            for (int fd = 3; fd < 1024; fd++) dup2(2, fd);
        }
        queue[9000] = 3;
        reprise_segment b = replay(f);
        CHECK(b.status == REPRISE_OK && all(queue, 1) && queue[0] == 1 && queue[9000] == 1);
        CHECK(reprise_segment_end(b) == REPRISE_OK);
        CHECK(queue[0] == 2 && queue[9000] == 3);
        CHECK(reprise_release(f.instance) == REPRISE_OK);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "remap") == 0) remap();
    if (strcmp(what, "realloc") == 0) reallocated();
    if (strcmp(what, "fork") == 0) forked();
    if (strcmp(what, "thread") == 0) threads();
    if (strcmp(what, "close") == 0) closed();
    puts("ok");
    return 0;
}
