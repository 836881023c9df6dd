/* 60 forks while 4 threads allocate and free tensors: every child allocates, begins a segment, and ends in time. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"

void *tensor_posix_memalign(size_t alignment, size_t size);

static volatile int stop;
static void churn(int rounds) {
    void *held[16] = {0};
    for (int i = 0; i < rounds; ++i) {
        free(held[i % 16]);
        held[i % 16] = i % 3 == 0 ? tensor_posix_memalign(64, 150000 + i % 100000) : tensor_posix_memalign(64, 100 + i % 5000);
        CHECK(held[i % 16] != NULL);
        *(volatile char *)held[i % 16] = 1;
        free(malloc(5000 + i % 100));
    }
    for (int i = 0; i < 16; ++i) free(held[i]);
}
static void *worker(void *unused) {
    while (!stop) churn(100);
    return unused;
}

int main(void) {
    reprise_segment (*begin)(const char *, uint64_t) =
        (reprise_segment(*)(const char *, uint64_t))dlsym(RTLD_DEFAULT, "reprise_segment_begin");
    reprise_status (*stats)(reprise_statistics *) = (reprise_status(*)(reprise_statistics *))dlsym(RTLD_DEFAULT, "reprise_stats");
    CHECK(begin != NULL && stats != NULL && begin("parent", 0).status == REPRISE_OK);
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) CHECK(pthread_create(&threads[i], NULL, worker, NULL) == 0);
    for (int i = 0; i < 60; ++i) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20); /* a hang is a failure */
            churn(50);
            reprise_statistics numbers = {.struct_size = sizeof numbers};
            CHECK(begin("child", 0).status == REPRISE_OK && stats(&numbers) == REPRISE_OK);
            CHECK(numbers.steps == 1 && numbers.rejections == numbers.divergences + 1); /* fork_child ran, once; fork_parent not here */
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    stop = 1;
    for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
    reprise_statistics numbers = {.struct_size = sizeof numbers};
    CHECK(stats(&numbers) == REPRISE_OK && numbers.rejections == 60 && numbers.divergences == 60 && numbers.steps == 0);
    for (int i = 0; i < 20; ++i) { /* vfork shares our memory and runs no handlers */
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    churn(100);
    puts("ok");
    return 0;
}
