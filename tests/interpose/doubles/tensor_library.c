/* Built as libc10.so and under other names: a library whose aligned allocations are tensors (or are not, by its name). */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdlib.h>

void *tensor_posix_memalign(size_t alignment, size_t size) {
    void *block = NULL;
    return posix_memalign(&block, alignment, size) == 0 ? block : NULL;
}
void *tensor_aligned_alloc(size_t alignment, size_t size) {
    void *volatile block = aligned_alloc(alignment, size); /* volatile: no tail call, so that the caller is this library */
    return block;
}
void *tensor_memalign(size_t alignment, size_t size) {
    void *volatile block = memalign(alignment, size);
    return block;
}
void *tensor_malloc(size_t size) {
    void *volatile block = malloc(size);
    return block;
}
