/* Linked without -pie, and its code takes malloc's address: the executable then answers for malloc, with a stub that leads to whoever comes
   first. */
#include "check.h"

void *(*volatile allocate)(size_t);

int main(void) {
    allocate = malloc;
    Dl_info where;
    /* else this program does not test what it is for */
    CHECK(dladdr((void *)allocate, &where) != 0 && strstr(where.dli_fname, "fixed_address") != NULL);
    int (*interposed)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "reprise_interposed");
    CHECK(interposed != NULL);
    free(allocate(10));
    CHECK(interposed());
    puts("ok");
    return 0;
}
