/* Linked without -pie, and takes malloc's address: the executable then answers for malloc, with a stub that leads to whoever comes first. */
#include "check.h"

void *(*volatile allocate)(size_t) = malloc;

int main(void) {
    int (*interposed)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "reprise_interposed");
    CHECK(interposed != NULL);
    CHECK((void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc") == allocate); /* else this program does not test what it is for */
    free(allocate(10));
    CHECK(interposed());
    puts("ok");
    return 0;
}
