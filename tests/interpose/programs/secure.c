/* Prints whether the process has raised privileges and what the engine answered: REPRISE_ENGINE must not be obeyed then. */
#include <sys/auxv.h>

#include "check.h"

int main(void) {
    free(malloc(1 << 20));
    reprise_segment segment = reprise_segment_begin("layer", 0);
    printf("secure %d stub %d owner %d\n", getauxval(AT_SECURE) != 0, segment.instance == 4242, getenv("REPRISE_OWNER_PID") != NULL);
    return 0;
}
