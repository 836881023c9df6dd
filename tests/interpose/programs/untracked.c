/* argv[1] names a library of tensors, argv[2] what the stub should say of its aligned blocks of 1 MiB: "arena", "heap" or "none". */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc > 2);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    void *(*allocate)(size_t, size_t) = (void *(*)(size_t, size_t))dlsym(library, "tensor_posix_memalign");
    void *block = allocate(64, 1 << 20);
    CHECK(block != NULL);
    fprintf(stderr, "%s\n", origin(block, NULL));
    CHECK(is_origin(block, argv[2]));
    free(block);
    puts("ok");
    return 0;
}
