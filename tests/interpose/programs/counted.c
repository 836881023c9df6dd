/* With the other allocator behind us: every call reaches it exactly once, so a hook allocates nothing of its own. */
#include "check.h"

void *tensor_posix_memalign(size_t alignment, size_t size);

int main(void) {
    unsigned long *mallocs = (unsigned long *)dlsym(RTLD_DEFAULT, "other_mallocs"),
                  *frees = (unsigned long *)dlsym(RTLD_DEFAULT, "other_frees");
    CHECK(mallocs != NULL && frees != NULL);
    free(tensor_posix_memalign(64, 1 << 20));
    free(tensor_posix_memalign(64, 1000)); /* everything is started now */
    unsigned long before = *mallocs, freed = *frees;
    void *a = malloc(10), *b = malloc(100000), *c = tensor_posix_memalign(64, 1000), *d = tensor_posix_memalign(64, 1 << 20);
    CHECK(a != NULL && b != NULL && c != NULL && d != NULL);
    CHECK(*mallocs == before + 3); /* d is in an arena */
    CHECK(malloc_usable_size(c) == 1000);
    free(a), free(b), free(c), free(d);
    CHECK(*frees == freed + 3);
    puts("ok");
    return 0;
}
