/* Which kernel features this machine has, found by using them, with raw system calls and definitions of its own: shares no code with
 * Reprise, so that a mistake in its probes cannot hide itself, and a test that was skipped although the feature is there can be told from
 * one that had to be. Used by tests/run and by the allocator's tests. Prints one line each, NAME=1 or NAME=0:
 *
 *   wp_async      writes to pages protected by userfaultfd WP_ASYNC are seen by PAGEMAP_SCAN, and get+reset protects them again
 *   huge_pages    aligned memory advised MADV_HUGEPAGE gets huge pages
 *   huge_holes    a huge page dropped by MADV_DONTNEED while protected is reported as written
 *   setuid        this process is root and its folder for temporary files honours the setuid bit
 *   memory_group  this process may make a control group with a limit of memory, move into it, and read its highest usage */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Newer than the headers of Debian 12. */
#define FEATURES ((uint64_t)1 | (uint64_t)1 << 13 | (uint64_t)1 << 15) /* WP, WP_UNPOPULATED, WP_ASYNC */
#define USER_MODE_ONLY 1
struct scan_region {
    uint64_t start, end, categories;
};
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, returned;
};
#define SCAN _IOWR('f', 16, struct scan)
enum { kReset = 1, kCheckWpAsync = 2, kWritten = 2, kPage = 4096, kHuge = 2 << 20 };

/* Two huge pages' worth of touched memory, aligned; NULL when there is none. */
static char *two_huge(void) {
    char *memory = mmap(NULL, 3 * kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    memory = (char *)(((uintptr_t)memory + kHuge - 1) & ~(uintptr_t)(kHuge - 1));
    madvise(memory, 2 * kHuge, MADV_HUGEPAGE);
    memset(memory, 1, 2 * kHuge);
    return memory;
}

static int protect(char *memory, size_t size) {
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    int fd = device >= 0 ? ioctl(device, _IO(0xAA, 0), O_CLOEXEC) : -1;
    if (device >= 0) close(device);
    if (fd < 0) fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURES};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) return -1;
    struct uffdio_register registration = {.range = {(uint64_t)(uintptr_t)memory, size}, .mode = UFFDIO_REGISTER_MODE_WP};
    return ioctl(fd, UFFDIO_REGISTER, &registration); /* the descriptor stays open: the program is short */
}

/* Pages written since the last reset, -1 when this kernel cannot say. */
static long pages_written(char *memory, size_t size, int reset) {
    static int pagemap = -1;
    if (pagemap < 0) pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    struct scan_region regions[64];
    struct scan scan = {.size = sizeof scan,
                        .flags = kCheckWpAsync | (reset ? kReset : 0),
                        .start = (uint64_t)(uintptr_t)memory,
                        .end = (uint64_t)(uintptr_t)memory + size,
                        .vec = (uint64_t)(uintptr_t)regions,
                        .vec_len = 64,
                        .mask = kWritten,
                        .returned = kWritten};
    long count = pagemap < 0 ? -1 : ioctl(pagemap, SCAN, &scan), pages = 0;
    for (long i = 0; i < count; i++) pages += (long)((regions[i].end - regions[i].start) / kPage);
    return count < 0 ? -1 : pages;
}

static int wp_async(void) {
    size_t size = 64 * kPage;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    memset(memory, 1, size / 2); /* half of the pages are not there yet: they are protected too */
    if (protect(memory, size) != 0 || pages_written(memory, size, 1) < 0 || pages_written(memory, size, 0) != 0) return 0;
    memory[3 * kPage] = 2;
    memory[50 * kPage] = 2;
    return pages_written(memory, size, 1) == 2 && pages_written(memory, size, 0) == 0;
}

static int huge_pages(void) {
    char *memory = two_huge();
    FILE *file = fopen("/proc/self/smaps", "r");
    if (memory == NULL || file == NULL) return 0;
    char line[512];
    int inside = 0, found = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long begin, end;
        long kib;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) inside = begin <= (uintptr_t)memory && (uintptr_t)memory < end;
        if (inside && sscanf(line, "AnonHugePages: %ld", &kib) == 1 && kib > 0) found = 1;
    }
    fclose(file);
    return found;
}

static int huge_holes(void) {
    char *memory = two_huge();
    if (memory == NULL || protect(memory, 2 * kHuge) != 0 || pages_written(memory, 2 * kHuge, 1) < 0) return 0;
    if (madvise(memory, kHuge, MADV_DONTNEED) != 0) return 0;
    return pages_written(memory, 2 * kHuge, 0) == kHuge / kPage;
}

static int may_setuid(void) {
    const char *folder = getenv("TMPDIR");
    struct statvfs file_system;
    if (statvfs(folder != NULL ? folder : "/tmp", &file_system) != 0) return 0;
    return geteuid() == 0 && (file_system.f_flag & ST_NOSUID) == 0;
}

static int write_number(const char *folder, const char *file, const char *number) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int good = fd >= 0 && write(fd, number, strlen(number)) == (ssize_t)strlen(number);
    if (fd >= 0) close(fd);
    return good;
}

static int group_below(const char *parent, const char *limit, const char *highest) {
    char folder[200];
    int status = 1;
    snprintf(folder, sizeof folder, "%s/reprise-feature-%d", parent, (int)getpid());
    if (mkdir(folder, 0755) != 0) return 0;
    char peak[256];
    snprintf(peak, sizeof peak, "%s/%s", folder, highest);
    int good = access(peak, R_OK) == 0 && write_number(folder, limit, "1073741824");
    pid_t child = good ? fork() : -1;
    if (child == 0) _exit(write_number(folder, "cgroup.procs", "0") ? 0 : 1);
    good = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    rmdir(folder);
    return good;
}

static int memory_group(void) {
    return group_below("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes") ||
           group_below("/sys/fs/cgroup", "memory.max", "memory.peak");
}

int main(void) {
    printf("wp_async=%d\n", wp_async());
    printf("huge_pages=%d\n", huge_pages());
    printf("huge_holes=%d\n", huge_holes());
    printf("setuid=%d\n", may_setuid());
    printf("memory_group=%d\n", memory_group());
    return 0;
}
