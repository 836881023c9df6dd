/* Opens libreprise.so (argv[1]) at run time: explicit mode, declared buffers only. */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc > 1);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    int (*interposed)(void) = (int (*)(void))dlsym(library, "reprise_interposed");
    reprise_segment (*begin)(const char *, uint64_t) = (reprise_segment(*)(const char *, uint64_t))dlsym(library, "reprise_segment_begin");
    reprise_status (*track)(void *, size_t, const char *, unsigned) =
        (reprise_status(*)(void *, size_t, const char *, unsigned))dlsym(library, "reprise_track");
    CHECK(interposed != NULL && begin != NULL && track != NULL);
    CHECK(interposed() == 0);
    CHECK(begin("layer", 0).status == REPRISE_OK);
    static char storage[4096];
    CHECK(track(storage, sizeof storage, "storage", 0) == REPRISE_OK);
    void *volatile block = malloc(1 << 20);
    free(block);
    dlclose(library);
    free(malloc(10));
    puts("ok");
    return 0;
}
