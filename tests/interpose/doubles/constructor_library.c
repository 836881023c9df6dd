/* Allocates in its constructor and frees in its destructor. */
#include <stdlib.h>
#include <string.h>

static char *small, *large;
__attribute__((constructor)) static void construct(void) {
    small = malloc(100);
    large = calloc(1, 1 << 20);
    small = realloc(small, 5000);
    memset(small, 1, 5000);
}
__attribute__((destructor)) static void destruct(void) {
    free(small);
    free(large);
}
int constructor_library_ready(void) { return small[4999] == 1 && large[0] == 0; }
