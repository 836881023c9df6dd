/* An allocator of somebody else's: its blocks carry a mark in front, and it ends the process when it is given one without. Counts what it
 * serves. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MARK 0x6f74686572616c6cull
struct header {
    uint64_t mark, size;
};
static char *pool;
static size_t used;
static const size_t pool_size = (size_t)1 << 36;
unsigned long other_mallocs, other_frees;

static void *get(size_t alignment, size_t size) {
    char *base = __atomic_load_n(&pool, __ATOMIC_ACQUIRE);
    if (base == NULL) {
        char *fresh = mmap(NULL, pool_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        char *none = NULL;
        if (fresh == MAP_FAILED) return NULL;
        if (!__atomic_compare_exchange_n(&pool, &none, fresh, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) munmap(fresh, pool_size);
        base = pool;
    }
    if (alignment < 16) alignment = 16;
    if (size > pool_size / 2) {
        errno = ENOMEM;
        return NULL;
    }
    size_t room = size + alignment + sizeof(struct header);
    size_t at = __atomic_fetch_add(&used, (room + 15) & ~(size_t)15, __ATOMIC_RELAXED);
    if (at + room > pool_size) {
        errno = ENOMEM;
        return NULL;
    }
    uintptr_t block = ((uintptr_t)base + at + sizeof(struct header) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    struct header *header = (struct header *)block - 1;
    header->mark = MARK;
    header->size = size;
    __atomic_fetch_add(&other_mallocs, 1, __ATOMIC_RELAXED);
    return (void *)block;
}
static struct header *check(void *block) {
    struct header *header = (struct header *)block - 1;
    if (header->mark != MARK) {
        static const char line[] = "other allocator: a foreign block\n";
        if (write(2, line, sizeof line - 1) < 0) _exit(98);
        _exit(99);
    }
    return header;
}

void *malloc(size_t size) { return get(16, size); }
void free(void *block) {
    if (block == NULL) return;
    struct header *header = check(block);
    header->mark = 0;
    uintptr_t begin = ((uintptr_t)block + 4095) & ~(uintptr_t)4095, end = ((uintptr_t)block + header->size) & ~(uintptr_t)4095;
    if (end > begin && end - begin >= 65536) madvise((void *)begin, end - begin, MADV_DONTNEED); /* addresses are never reused, memory is */
    __atomic_fetch_add(&other_frees, 1, __ATOMIC_RELAXED);
}
void *calloc(size_t count, size_t size) {
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return get(16, total); /* the pool is never reused */
}
void *realloc(void *block, size_t size) {
    void *moved = get(16, size);
    if (moved != NULL && block != NULL) {
        size_t old = check(block)->size;
        memcpy(moved, block, old < size ? old : size);
        free(block);
    }
    return moved;
}
int posix_memalign(void **out, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0) return EINVAL;
    void *block = get(alignment, size);
    if (block == NULL) return ENOMEM;
    *out = block;
    return 0;
}
void *aligned_alloc(size_t alignment, size_t size) { return get(alignment, size); }
void *memalign(size_t alignment, size_t size) { return get(alignment, size); }
void *valloc(size_t size) { return get(4096, size); }
void *pvalloc(size_t size) { return get(4096, (size + 4095) & ~(size_t)4095); }
size_t malloc_usable_size(void *block) { return block == NULL ? 0 : check(block)->size; }
