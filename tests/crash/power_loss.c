/* Preloaded into the server: what was written to a file and not synced is lost when the process is killed, as at a power
 * loss. Writes are kept in memory until the file is synced or closed; some, or the front of them, reach the disk at once.
 * SEENDB_TEST_KEPT is how many of 100 do. A sync takes up to 3 ms, so that there is a moment to be killed in. While there is a
 * file SEENDB_TEST_FAILING, one sync in 25 fails, and what it should have made safe is gone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct held {
    struct held *next;
    int fd;
    off64_t offset;
    size_t length;
    char bytes[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *first, **last = &first;
static uint64_t state;

static unsigned below(unsigned end) {
    if (state == 0) state = (uint64_t)getpid() * 0x9e3779b97f4a7c15u + (uint64_t)time(NULL);
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (unsigned)(state % end);
}

static ssize_t write_now(int fd, const char *bytes, size_t length, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    size_t done = 0;
    while (done < length) {
        ssize_t some = real(fd, bytes + done, length - done, offset + (off64_t)done);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) return done ? (ssize_t)done : some;
        done += (size_t)some;
    }
    return (ssize_t)done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    const char *kept = getenv("SEENDB_TEST_KEPT");
    pthread_mutex_lock(&lock);
    if (below(100) < (unsigned)(kept ? atoi(kept) : 30)) {
        size_t front = below(2) ? length : below((unsigned)length + 1);
        write_now(fd, bytes, front, offset);
    }
    struct held *held = malloc(sizeof *held + length);
    *held = (struct held){NULL, fd, offset, length};
    memcpy(held->bytes, bytes, length);
    *last = held;
    last = &held->next;
    pthread_mutex_unlock(&lock);
    return (ssize_t)length;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

static int write_held(int fd, int lost) {
    int failed = 0;
    pthread_mutex_lock(&lock);
    for (struct held **at = &first; *at;) {
        struct held *held = *at;
        if (held->fd != fd) {
            at = &held->next;
            continue;
        }
        if (!lost && write_now(fd, held->bytes, held->length, held->offset) != (ssize_t)held->length) failed = -1;
        if (last == &held->next) last = at;
        *at = held->next;
        free(held);
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

int fdatasync(int fd) {
    pthread_mutex_lock(&lock);
    unsigned micros = below(3000);
    const char *flag = getenv("SEENDB_TEST_FAILING");
    int fails = below(25) == 0 && flag && access(flag, F_OK) == 0;
    pthread_mutex_unlock(&lock);
    usleep(micros);
    int done = write_held(fd, fails);
    usleep(micros / 2);
    if (fails) errno = EIO;
    return fails ? -1 : done;
}

int fsync(int fd) { return fdatasync(fd); }

int close(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "close");
    write_held(fd, 0);
    return real(fd);
}
