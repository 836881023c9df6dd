/* Blocks of a tensor library (libc10.so, linked) in both worlds: placed, listed, reallocated, freed, from several threads. */
#include <pthread.h>

#include "check.h"

void *tensor_posix_memalign(size_t alignment, size_t size);
void *tensor_aligned_alloc(size_t alignment, size_t size);
void *tensor_memalign(size_t alignment, size_t size);
void *tensor_malloc(size_t size);

enum { SMALL = 1000, LARGE = 1 << 20 };

static void placed_by_size(void) {
    void *(*const allocate[])(size_t, size_t) = {tensor_posix_memalign, tensor_aligned_alloc, tensor_memalign};
    for (int i = 0; i < 3; ++i) {
        char *large = allocate[i](64, LARGE);
        char *small = allocate[i](64, 1024);
        CHECK(large != NULL && small != NULL);
        CHECK((uintptr_t)large % 64 == 0 && (uintptr_t)small % 64 == 0);
        CHECK(is_origin(large, "arena"));
        CHECK(is_origin(small, "heap"));
        CHECK(malloc_usable_size(large) >= LARGE && malloc_usable_size(small) >= 1024);
        memset(large, 1, LARGE);
        memset(small, 2, 1024);
        free(large);
        free(small);
        CHECK(is_origin(small, "none"));
        CHECK(is_origin(large, "none"));
    }
    char *plain = tensor_malloc(LARGE); /* bookkeeping of the library */
    CHECK(is_origin(plain, "none"));
    free(plain);
    char *mine = NULL; /* not from the library */
    CHECK(posix_memalign((void **)&mine, 64, LARGE) == 0);
    CHECK(is_origin(mine, "none"));
    free(mine);
}

static void fill(char *at, size_t size) {
    for (size_t i = 0; i < size; ++i) at[i] = (char)(i * 7 + 3);
}
static int filled(const char *at, size_t size) {
    for (size_t i = 0; i < size; ++i)
        if (at[i] != (char)(i * 7 + 3)) return 0;
    return 1;
}

static void between_worlds(void) {
    char *block = tensor_posix_memalign(64, LARGE);
    fill(block, LARGE);
    block = realloc(block, 3 * LARGE);
    CHECK(block != NULL && filled(block, LARGE));
    CHECK(is_origin(block, "arena"));
    block = realloc(block, SMALL); /* leaves the arena */
    CHECK(filled(block, SMALL) && is_origin(block, "heap"));
    block = realloc(block, SMALL - 100); /* stays */
    CHECK(filled(block, SMALL - 100) && is_origin(block, "heap"));
    block = realloc(block, LARGE); /* and back */
    CHECK(filled(block, SMALL - 100) && is_origin(block, "arena"));
    errno = 0;
    size_t size = 0;
    CHECK(realloc(block, SIZE_MAX / 4) == NULL && errno == ENOMEM);
    CHECK(strcmp(origin(block, &size), "arena") == 0 && size >= LARGE && filled(block, SMALL - 100)); /* the old record and block stand */
    char *listed = tensor_posix_memalign(64, SMALL);
    fill(listed, SMALL);
    errno = 0;
    CHECK(realloc(listed, SIZE_MAX / 4) == NULL && errno == ENOMEM);
    CHECK(is_origin(listed, "heap") && filled(listed, SMALL));
    CHECK(reallocarray(listed, SIZE_MAX / 8, 16) == NULL && errno == ENOMEM && is_origin(listed, "heap"));
    listed = reallocarray(listed, 4, SMALL);
    CHECK(filled(listed, SMALL) && is_origin(listed, "heap"));
    free(listed);
    CHECK(realloc(block, 0) == NULL); /* as glibc: freed */
    CHECK(is_origin(block, "none"));
}

static void errors_kept(void) {
    errno = 42;
    void *large = tensor_posix_memalign(64, LARGE);
    void *small = tensor_posix_memalign(64, SMALL);
    CHECK(errno == 42);
    free(large);
    free(small);
    CHECK(errno == 42);
    void *untouched = &errno;
    CHECK(posix_memalign(&untouched, 3, LARGE) == EINVAL && untouched == &errno && errno == 42);
    CHECK(tensor_posix_memalign(3, LARGE) == NULL && errno == 42);
    CHECK(tensor_posix_memalign(64, SIZE_MAX / 2) == NULL);
    errno = 0;
    CHECK(tensor_aligned_alloc(64, SIZE_MAX / 2 + 1) == NULL && errno == ENOMEM);
}

static void *queue[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *worker(void *context) {
    unsigned seed = (unsigned)(uintptr_t)context;
    for (int i = 0; i < 20000; ++i) {
        seed = seed * 1664525u + 1013904223u;
        unsigned slot = (seed >> 20) % 64;
        size_t size = (seed >> 10) % 3 == 0 ? 200000 + (seed & 0xffff) : 1 + (seed & 0x3fff);
        char *mine = (seed >> 9) & 1 ? tensor_posix_memalign(64, size) : malloc(size);
        CHECK(mine != NULL);
        mine[0] = mine[size - 1] = (char)slot;
        pthread_mutex_lock(&lock);
        void *other = queue[slot];
        queue[slot] = mine;
        pthread_mutex_unlock(&lock);
        if ((seed >> 8) & 1) other = realloc(other, size / 2 + 1); /* another thread's, or NULL */
        if (other != NULL) free(other);
    }
    return tensor_posix_memalign(64, LARGE); /* the thread exits with a live block */
}

static void across_threads(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; ++i) CHECK(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; ++i) {
        void *left = NULL;
        pthread_join(threads[i], &left);
        CHECK(is_origin(left, "arena"));
        memset(left, 1, LARGE);
        free(left);
    }
    for (int i = 0; i < 64; ++i) free(queue[i]);
}

int main(void) {
    placed_by_size();
    between_worlds();
    errors_kept();
    across_threads();
    puts("ok");
    return 0;
}
