/* Declared ranges end with their mapping (munmap, MAP_FIXED, mremap, MADV_DONTNEED) or with the heap block they lie in; not by what leaves
 * the bytes alone. */
#include <sys/mman.h>

#include "check.h"

static char *declare(void) {
    char *at = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && reprise_track(at + 8192, 8192, "range", 0) == REPRISE_OK);
    CHECK(is_origin(at + 8192, "declared"));
    return at;
}
#define ALIVE(at) is_origin((at) + 8192, "declared")

int main(void) {
    char *at = declare();
    CHECK(munmap(at, 8192) == 0 && ALIVE(at)); /* the part before it */
    CHECK(munmap(at + 8192, 4096) == 0 && !ALIVE(at));
    at = declare();
    CHECK(madvise(at, 32768, MADV_WILLNEED) == 0 && ALIVE(at));
    CHECK(madvise(at + 12288, 4096, MADV_DONTNEED) == 0 && !ALIVE(at));
    at = declare();
    CHECK(mmap(at + 8192, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST &&
          ALIVE(at));
    CHECK(mmap(at + 8192, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + 8192 && !ALIVE(at));
    at = declare();
    CHECK(mremap(at, 32768, 1 << 20, MREMAP_MAYMOVE) != MAP_FAILED && !ALIVE(at));
    at = declare();
    CHECK(mremap(at, 32768, 8192, 0) == at && !ALIVE(at));
    at = declare();
    CHECK(mremap(at, 32768, 16384, 0) == at && ALIVE(at));
    char *other = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mremap(other, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, at + 8192) == at + 8192 && !ALIVE(at));

    /* Heap blocks too small to be tracked, and a piece inside one. */
    for (size_t offset = 0; offset <= 64; offset += 64) {
        char *block = malloc(300), *next_to_it = malloc(300);
        CHECK(reprise_track(block + offset, 128, "small", 0) == REPRISE_OK && is_origin(block + offset, "declared"));
        free(next_to_it);
        CHECK(is_origin(block + offset, "declared"));
        free(block);
        CHECK(!is_origin(block + offset, "declared"));
        block = malloc(300);
        CHECK(reprise_track(block + offset, 128, "small", 0) == REPRISE_OK);
        char *moved = realloc(block, 3000);
        CHECK(moved != NULL && (moved == block || !is_origin(block + offset, "declared")));
        free(moved);
    }
    puts("ok");
    return 0;
}
