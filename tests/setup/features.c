/* Which kernel features this machine has, found by using them, on its own: shares no code with Reprise, so that a test that was skipped
 * although the feature is there can be told from one that had to be. Prints one line each, "name yes" or "name no".
 *
 *   wp_async       a write to a page protected by userfaultfd WP_ASYNC is seen by PAGEMAP_SCAN, and get+reset protects it again
 *   uffd_wp        synchronous write protection by userfaultfd without privileges
 *   huge_pages     a 2 MiB aligned anonymous mapping advised MADV_HUGEPAGE gets a huge page
 *   memfd          memfd_create
 *   cgroup         this process may make a memory cgroup with a limit
 *   seccomp        filters can be installed
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than the headers of Debian 12. */
#define WP_ASYNC_FEATURE (1ull << 15)
#define WP_UNPOPULATED_FEATURE (1ull << 13)
#define WP_FEATURE (1ull << 0)
#define USER_MODE_ONLY 1
#define IS_WRITTEN (1ull << 1)
#define WP_MATCHING 1ull
#define CHECK_WPASYNC 2ull
struct scan_region {
    uint64_t start, end, categories;
};
struct scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_IOCTL _IOWR('f', 16, struct scan_arg)

enum { kPages = 16, kPage = 4096 };

static int open_userfaultfd(uint64_t features) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
    if (fd < 0) return -1;
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    if (ioctl(fd, UFFDIO_API, &api) != 0 || (api.features & features) != features) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Registers and protects the pages; 0 when that worked. */
static int protect(int fd, char *pages) {
    struct uffdio_range range = {(uint64_t)(uintptr_t)pages, kPages * kPage};
    struct uffdio_register registration = {.range = range, .mode = UFFDIO_REGISTER_MODE_WP};
    if (ioctl(fd, UFFDIO_REGISTER, &registration) != 0) return -1;
    struct uffdio_writeprotect protection = {.range = range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    return ioctl(fd, UFFDIO_WRITEPROTECT, &protection);
}

/* Page index when exactly one page was written, else -1. */
static int one_written(int pagemap, char *pages) {
    struct scan_region regions[kPages];
    struct scan_arg arg = {.size = sizeof arg,
                           .flags = WP_MATCHING | CHECK_WPASYNC,
                           .start = (uint64_t)(uintptr_t)pages,
                           .end = (uint64_t)(uintptr_t)pages + kPages * kPage,
                           .vec = (uint64_t)(uintptr_t)regions,
                           .vec_len = kPages,
                           .category_mask = IS_WRITTEN,
                           .return_mask = IS_WRITTEN};
    int found = ioctl(pagemap, SCAN_IOCTL, &arg);
    if (found != 1 || regions[0].end - regions[0].start != kPage) return -1;
    return (int)((regions[0].start - arg.start) / kPage);
}

static int wp_async(void) {
    char *pages = mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open_userfaultfd(WP_FEATURE | WP_ASYNC_FEATURE | WP_UNPOPULATED_FEATURE);
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pages == MAP_FAILED || fd < 0 || pagemap < 0) return 0;
    madvise(pages, kPages * kPage, MADV_NOHUGEPAGE);
    memset(pages, 1, kPages * kPage);
    if (protect(fd, pages) != 0) return 0;
    pages[3 * kPage] = 2;
    if (one_written(pagemap, pages) != 3) return 0;
    pages[7 * kPage] = 2;
    return one_written(pagemap, pages) == 7; /* only with get+reset is page 3 no longer reported */
}

static int uffd_wp(void) {
    char *pages = mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open_userfaultfd(WP_FEATURE);
    if (pages == MAP_FAILED || fd < 0) return 0;
    memset(pages, 1, kPages * kPage);
    return protect(fd, pages) == 0;
}

static int huge_pages(void) {
    size_t huge = (size_t)2 << 20;
    char *memory = mmap(NULL, 2 * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    char *aligned = (char *)(((uintptr_t)memory + huge - 1) & ~(uintptr_t)(huge - 1));
    if (madvise(aligned, huge, MADV_HUGEPAGE) != 0) return 0;
    memset(aligned, 1, huge);
    FILE *file = fopen("/proc/self/smaps", "r");
    if (file == NULL) return 0;
    char line[512];
    int inside = 0, found = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long begin, end;
        long kib;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) inside = begin <= (uintptr_t)aligned && (uintptr_t)aligned < end;
        if (inside && sscanf(line, "AnonHugePages: %ld", &kib) == 1 && kib > 0) found = 1;
    }
    fclose(file);
    return found;
}

static int cgroup(void) {
    char path[128];
    snprintf(path, sizeof path, "/sys/fs/cgroup/reprise-probe-%d", (int)getpid());
    if (mkdir(path, 0755) != 0) return 0;
    char limit[160];
    snprintf(limit, sizeof limit, "%s/memory.max", path);
    int fd = open(limit, O_WRONLY | O_CLOEXEC);
    int can = fd >= 0 && write(fd, "1073741824", 10) == 10;
    rmdir(path);
    return can;
}

static void report(const char *name, int has) { printf("%s %s\n", name, has ? "yes" : "no"); }

int main(void) {
    report("wp_async", wp_async());
    report("uffd_wp", uffd_wp());
    report("huge_pages", huge_pages());
    report("memfd", (int)syscall(SYS_memfd_create, "probe", 1u) >= 0);
    report("cgroup", cgroup());
    report("seccomp", prctl(PR_GET_SECCOMP) >= 0);
    return 0;
}
