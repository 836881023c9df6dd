/* The malloc and mmap families with no tensor in sight: results and errno are libc's, blocks are nobody's. argv[1]: a library to dlopen. */
#include <sys/mman.h>

#include "check.h"

static void family(void) {
    errno = 77;
    char *a = malloc(0), *b = malloc(10), *c = calloc(3, 7), *d = malloc(1 << 20);
    CHECK(a != NULL && b != NULL && c != NULL && d != NULL && errno == 77);
    CHECK(is_origin(d, "none"));
    for (int i = 0; i < 21; ++i) CHECK(c[i] == 0);
    memset(d, 1, 1 << 20);
    d = realloc(d, 2 << 20);
    CHECK(d[(1 << 20) - 1] == 1);
    d = realloc(d, 10);
    d = reallocarray(d, 100, 100);
    CHECK(d[9] == 1);
    free(a), free(b), free(c), free(d), free(NULL);
    CHECK(errno == 77);
    void *p = &errno;
    CHECK(posix_memalign(&p, 24, 10) == EINVAL && p == &errno && errno == 77);
    CHECK(posix_memalign(&p, 256, 10) == 0 && (uintptr_t)p % 256 == 0);
    free(p);
    CHECK((p = aligned_alloc(512, 1024)) != NULL && (uintptr_t)p % 512 == 0);
    free(p);
    CHECK((p = memalign(1024, 1)) != NULL && (uintptr_t)p % 1024 == 0);
    CHECK(malloc_usable_size(p) >= 1);
    free(p);
    CHECK((p = valloc(1)) != NULL && (uintptr_t)p % 4096 == 0);
    free(p);
    CHECK((p = pvalloc(1)) != NULL && malloc_usable_size(p) >= 4096);
    free(p);
    size_t volatile huge = SIZE_MAX - 100;
    errno = 0;
    CHECK(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(huge, huge) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(NULL, huge, 8) == NULL && errno == ENOMEM);
    CHECK((p = malloc(5)) != NULL && realloc(p, huge) == NULL);
    free(p);
}

static void mappings(void) {
    char *at = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    at[0] = at[8192] = 1;
    CHECK(madvise(at + 8192, 4096, MADV_DONTNEED) == 0 && at[8192] == 0 && at[0] == 1);
    CHECK(mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at && at[0] == 0);
    char *moved = mremap(at, 16384, 65536, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    char *target = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mremap(moved, 65536, 65536, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    CHECK(munmap(target, 65536) == 0);
    errno = 0;
    CHECK(munmap((void *)1, 4096) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    errno = 0;
    CHECK(mmap64(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED && errno == EBADF);
    errno = 0;
    CHECK(mremap((void *)4096, 4096, 8192, 0) == MAP_FAILED && errno == EFAULT);
    errno = 0;
    CHECK(madvise((void *)1, 4096, MADV_DONTNEED) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(mlockall(0) == -1 && errno == EINVAL);
}

int main(int argc, char **argv) {
    family();
    mappings();
    if (argc > 1) {
        for (int i = 0; i < 3; ++i) {
            void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
            CHECK(library != NULL);
            int (*ready)(void) = (int (*)(void))dlsym(library, "constructor_library_ready");
            CHECK(ready != NULL && ready());
            CHECK(dlclose(library) == 0);
        }
    }
    puts("ok");
    return 0;
}
