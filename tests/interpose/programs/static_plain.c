/* Static: the loader never sees LD_PRELOAD, and nothing happens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    char *block = malloc(1 << 20);
    if (block == NULL) return 1;
    memset(block, 1, 1 << 20);
    printf("static %d\n", block[1000]);
    free(block);
    return 0;
}
