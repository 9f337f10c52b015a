/* A disk that is slow to sync, for measurements: every fsync and fdatasync takes SLOW_SYNC_MS milliseconds more.
 *
 *   cc -shared -fPIC -O2 -o slow_sync.so benches/slow_sync.c -ldl
 *   SLOW_SYNC_MS=300 LD_PRELOAD=./slow_sync.so seendb …
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void pause_first(void) {
    const char *text = getenv("SLOW_SYNC_MS");
    usleep(1000 * (text ? atoi(text) : 0));
}

int fsync(int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    pause_first();
    return real(descriptor);
}

int fdatasync(int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    pause_first();
    return real(descriptor);
}
