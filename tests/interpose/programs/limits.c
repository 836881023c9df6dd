/* Under a limit: argv[1] is mlockall, address-space or descriptors. Tensors keep working; nothing is killed. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "check.h"

void *tensor_posix_memalign(size_t alignment, size_t size);

int main(int argc, char **argv) {
    CHECK(argc > 1);
    if (strcmp(argv[1], "mlockall") == 0) {
        CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    } else if (strcmp(argv[1], "mlockall-late") == 0) {
        free(tensor_posix_memalign(64, 1 << 20));
        CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    } else if (strcmp(argv[1], "address-space") == 0) {
        struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    } else if (strcmp(argv[1], "descriptors") == 0) {
        struct rlimit limit = {3, 3};
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    } else {
        CHECK(argc < 0);
    }
    char *blocks[100];
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 100; ++i) {
            CHECK((blocks[i] = tensor_posix_memalign(64, i % 2 == 0 ? 1 << 20 : 5000)) != NULL);
            memset(blocks[i], i, 5000);
        }
        for (int i = 0; i < 100; ++i) {
            CHECK(blocks[i][4999] == (char)i);
            free(blocks[i]);
        }
    }
    if (strncmp(argv[1], "mlockall", 8) == 0) {
        FILE *status = fopen("/proc/self/status", "r");
        char line[256];
        long resident = -1;
        while (fgets(line, sizeof line, status) != NULL) sscanf(line, "VmRSS: %ld kB", &resident);
        fclose(status);
        fprintf(stderr, "resident %ld kB\n", resident);
        CHECK(resident >= 0 && resident < 512 << 10); /* 50 MiB of tensors at a time: no arena may have become resident as a whole */
        CHECK(munlockall() == 0);
    }
    puts("ok");
    return 0;
}
