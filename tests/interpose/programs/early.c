/* Calls before any constructor has run (.preinit_array comes first of all). Prints and checks in main. */
#include "check.h"

static void *blocks[6];
static void early(void) {
    blocks[0] = malloc(10);
    blocks[1] = calloc(10, 1000);
    blocks[2] = realloc(malloc(10), 200000);
    if (posix_memalign(&blocks[3], 64, 1 << 20) != 0) blocks[3] = NULL;
    blocks[4] = aligned_alloc(4096, 8192);
    blocks[5] = malloc(1 << 20);
    free(malloc(50));
}
__attribute__((section(".preinit_array"), used)) static void (*const run_early)(void) = early;

int main(void) {
    for (int i = 0; i < 6; ++i) CHECK(blocks[i] != NULL && malloc_usable_size(blocks[i]) >= 10);
    memset(blocks[5], 1, 1 << 20);
    for (int i = 0; i < 6; ++i) free(blocks[i]);
    puts("ok");
    return 0;
}
