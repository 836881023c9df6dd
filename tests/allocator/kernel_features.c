/* Does this kernel track writes (userfaultfd WP_ASYNC with PAGEMAP_SCAN)? Prints wp_async=0|1, found by doing it with raw system calls and
 * definitions of its own, so that a mistake in the allocator's probe cannot hide itself. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct region {
    uint64_t start, end, categories;
};
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, ret;
};
#define SCAN _IOWR('f', 16, struct scan)

static int pages_written(int pagemap, char *memory, size_t size, int reset) {
    struct region r[32];
    struct scan s;
    memset(&s, 0, sizeof s);
    s.size = sizeof s;
    s.flags = 2u | (reset ? 1u : 0u);
    s.start = (uint64_t)(uintptr_t)memory;
    s.end = s.start + size;
    s.vec = (uint64_t)(uintptr_t)r;
    s.vec_len = 32;
    s.mask = s.ret = 2;
    int n = ioctl(pagemap, SCAN, &s), pages = 0;
    for (int i = 0; i < n; i++) pages += (int)((r[i].end - r[i].start) / 4096);
    return n < 0 ? -1 : pages;
}

static int try_it(void) {
    int fd = -1, device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device >= 0) fd = ioctl(device, _IO(0xAA, 0), O_CLOEXEC);
    if (fd < 0) fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
    if (fd < 0) return 0;
    struct uffdio_api api = {.api = UFFD_API, .features = 1u | 1u << 13 | 1u << 15};
    if (ioctl(fd, UFFDIO_API, &api) != 0) return 0;
    size_t size = 64 * 4096;
    char *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return 0;
    memset(m, 1, size / 2);
    struct uffdio_register reg = {.range = {(uint64_t)(uintptr_t)m, size}, .mode = UFFDIO_REGISTER_MODE_WP};
    if (ioctl(fd, UFFDIO_REGISTER, &reg) != 0) return 0;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0 || pages_written(pagemap, m, size, 1) < 0) return 0;
    if (pages_written(pagemap, m, size, 0) != 0) return 0;
    m[3 * 4096] = 2;
    m[50 * 4096] = 2;
    return pages_written(pagemap, m, size, 1) == 2 && pages_written(pagemap, m, size, 0) == 0;
}

int main(void) {
    printf("wp_async=%d\n", try_it());
    return 0;
}
