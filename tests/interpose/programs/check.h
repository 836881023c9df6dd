/* For the programs of this folder: each does one thing under the preload, prints what failed, exits 0 when nothing did. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reprise/reprise.h"

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "%s:%d: failed: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            _exit(1);                                                                                 \
        }                                                                                             \
    } while (0)

/* What the stub engine knows of an address: "arena", "heap", "declared" or "none". By dlsym, so that the program does not import the API.
 */
static inline const char *origin(const void *address, size_t *size) {
    static reprise_buffer buffer;
    reprise_status (*info)(const void *, reprise_buffer *, reprise_range *, size_t *) =
        (reprise_status(*)(const void *, reprise_buffer *, reprise_range *, size_t *))dlsym(RTLD_DEFAULT, "reprise_buffer_info");
    if (info == NULL || info(address, &buffer, NULL, NULL) != REPRISE_OK) return "none";
    if (buffer.address != address) return "inside";
    if (size != NULL) *size = buffer.size;
    return buffer.mechanism;
}
static inline int is_origin(const void *address, const char *expected) { return strcmp(origin(address, NULL), expected) == 0; }
#endif
