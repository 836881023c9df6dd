/* Imports the API and prints what it answers: "STATUS INSTANCE ACTION | interposed | last error". argv[1]: how to end. */
#include "check.h"
#include "reprise/detail/engine_abi.h"

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "return";
    if (strcmp(how, "idle") == 0) return 0;
    CHECK(reprise_last_error()[0] == '\0' && strcmp(reprise_version(), "0.1.0") == 0);
    reprise_segment segment = reprise_segment_begin("layer", 0);
    printf("%d %llu %d | %d | %s\n", segment.status, (unsigned long long)segment.instance, segment.action, reprise_interposed(),
           reprise_last_error());
    printf("%d %d %d\n", reprise_segment_end(segment), reprise_step(), reprise_adapter_table(REPRISE_ENGINE_ABI) != NULL);
    CHECK(reprise_adapter_table(REPRISE_ENGINE_ABI + 1) == NULL && strstr(reprise_last_error(), "another version") != NULL);
    fflush(stdout);
    if (strcmp(how, "_exit") == 0) _exit(5);
    if (strcmp(how, "quick_exit") == 0) quick_exit(5);
    if (strcmp(how, "kill") == 0) abort();
    return strcmp(how, "fail") == 0 ? 5 : 0;
}
