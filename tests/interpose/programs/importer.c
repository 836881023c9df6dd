/* A program that imports reprise_segment_begin: its own allocations of 4 KiB and more are tracked, those of libc are not. */
#include "check.h"

enum { LARGE = 1 << 20 };

int main(void) {
    reprise_segment segment = reprise_segment_begin("one", 0);
    CHECK(segment.status == REPRISE_OK && segment.instance == 4242);
    CHECK(reprise_segment_end(segment) == REPRISE_OK);

    char *tiny = malloc(4095), *small = malloc(4096), *large = malloc(LARGE);
    CHECK(is_origin(tiny, "none") && is_origin(small, "heap") && is_origin(large, "arena"));
    memset(large, 7, LARGE);
    free(tiny), free(small), free(large);

    large = calloc(1024, 1024);
    for (int i = 0; i < LARGE; ++i) CHECK(large[i] == 0);
    memset(large, 9, LARGE);
    free(large);
    large = calloc(1024, 1024); /* reused memory must read as zero too */
    for (int i = 0; i < LARGE; ++i) CHECK(large[i] == 0);
    CHECK(is_origin(large, "arena"));
    free(large);
    small = calloc(100, 100);
    for (int i = 0; i < 10000; ++i) CHECK(small[i] == 0);
    CHECK(is_origin(small, "heap"));
    free(small);

    errno = 0;
    size_t volatile huge = SIZE_MAX / 2;
    CHECK(calloc(huge, 4) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(malloc(SIZE_MAX - 4096) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(malloc(huge) == NULL && errno == ENOMEM);

    char *grown = malloc(100);
    memset(grown, 5, 100);
    grown = realloc(grown, 8192);
    CHECK(is_origin(grown, "heap") && grown[99] == 5);
    grown = realloc(grown, LARGE);
    CHECK(is_origin(grown, "arena") && grown[99] == 5);
    grown = realloc(grown, 50);
    CHECK(grown[49] == 5);
    free(grown);
    grown = malloc(100); /* never listed, straight to an arena */
    memset(grown, 6, 100);
    grown = realloc(grown, LARGE);
    CHECK(is_origin(grown, "arena") && grown[99] == 6);
    free(grown);

    CHECK(is_origin(grown = valloc(LARGE), "arena") && (uintptr_t)grown % 4096 == 0);
    free(grown);
    CHECK(is_origin(grown = pvalloc(5000), "heap") && (uintptr_t)grown % 4096 == 0);
    free(grown);
    CHECK(is_origin(grown = memalign(1 << 16, LARGE), "arena") && (uintptr_t)grown % (1 << 16) == 0);
    free(grown);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);

    char *line = NULL; /* allocated inside libc, freed here */
    size_t capacity = 0;
    FILE *file = fmemopen((void *)"a line of text\n", 15, "r");
    CHECK(getline(&line, &capacity, file) == 15);
    fclose(file);
    free(line);

    static char storage[8192] __attribute__((aligned(4096)));
    CHECK(reprise_track(storage, sizeof storage, "storage", 0) == REPRISE_OK && is_origin(storage, "declared"));
    CHECK(reprise_untrack(storage) == REPRISE_OK && is_origin(storage, "none"));
    CHECK(reprise_release(1) == REPRISE_UNKNOWN_INSTANCE && strcmp(reprise_last_error(), "the stub's error") == 0);
    puts("ok");
    return 0;
}
