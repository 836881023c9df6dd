#include "interpose/library_path.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <initializer_list>

#include "interpose/module.h"
#include "interpose/raw_log.h"

namespace reprise {
namespace {

constinit char g_directory[PATH_MAX] = "";
constinit pthread_once_t g_once = PTHREAD_ONCE_INIT;

void compute() {
    Module self;
    if (!find_module(reinterpret_cast<const void *>(&compute), &self)) return;
    char resolved[PATH_MAX];
    if (realpath(self.name, resolved) == nullptr) return;
    char *slash = strrchr(resolved, '/');
    if (slash == nullptr) return;
    *slash = '\0';
    memcpy(g_directory, resolved, strlen(resolved) + 1);
}

}  // namespace

void remember_relative_directory() {
    Module self;
    if (!find_module(reinterpret_cast<const void *>(&compute), &self) || self.name[0] != '/') library_directory();
}

const char *library_directory() {
    const int saved = errno;
    pthread_once(&g_once, compute);
    errno = saved;
    return g_directory;
}

bool find_beside(const char *name, char *into, size_t capacity) {
    const char *directory = library_directory();
    const int saved = errno;
    for (const char *infix : {"/", "/reprise/"}) {
        TextBuffer(into, capacity) << directory << infix << name;
        if (directory[0] != '\0' && access(into, R_OK) == 0) return true;
    }
    errno = saved;
    into[0] = '\0';
    return false;
}

}  // namespace reprise
