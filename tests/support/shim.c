/* Stands between a program and the C library: the n-th call of a kind fails, or is the last thing that
 * the process does, or says that it is done and is not; or calls of all kinds fail now and then.
 * Loaded by LD_PRELOAD; does nothing before `shim_arm` or `shim_haze` is called.
 *
 * Only calls on files below the armed directory count. `msync` takes an address, and the start of a thread
 * neither: every one counts, since nothing but a store calls them in the processes that are tested.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/types.h>
#include <unistd.h>
#include <dirent.h>

enum call { OPEN, FSYNC, MSYNC, MMAP, FALLOCATE, FTRUNCATE, PWRITE, PREAD, RENAME, UNLINK, MKDIR, SYNCFS,
            OPENDIR, FCHMOD, LINKAT, STAT, THREAD, READDIR, LSEEK, LOCK, CALLS };
enum action { PASS, FAIL, KILL_BEFORE, KILL_AFTER, LIE };

static char root[4096];
static size_t root_len;
static int armed_call = -1, armed_action, armed_error, armed_forever;
static long armed_at;
static atomic_long counts[CALLS];
static atomic_ulong hazed;
static unsigned long haze_per_million, haze_seed;
static __thread int met_error;
static long file_system;
static int ofd_error;

/* What a kind of call fails with now and then: what passes, and a disk that fails. */
static const int haze_errors[CALLS] = {
    [OPEN] = EMFILE, [FSYNC] = EIO, [MSYNC] = EIO, [MMAP] = ENOMEM, [FALLOCATE] = ENOSPC, [FTRUNCATE] = EIO,
    [PWRITE] = EIO, [PREAD] = EIO, [RENAME] = EIO, [UNLINK] = EIO, [MKDIR] = ENOSPC, [SYNCFS] = EIO,
    [OPENDIR] = EMFILE, [FCHMOD] = EIO, [LINKAT] = ENOSPC, [STAT] = ENOMEM,
    [THREAD] = EAGAIN, [READDIR] = EIO, [LSEEK] = EIO, [LOCK] = ENOLCK,
};

void shim_arm(const char *below, int call, int action, long at, int forever, int error) {
    root_len = strlen(below);
    memcpy(root, below, root_len + 1);
    for (int i = 0; i < CALLS; i++) atomic_store(&counts[i], 0);
    armed_action = action, armed_at = at, armed_forever = forever, armed_error = error;
    armed_call = call;
}

void shim_haze(const char *below, long per_million, unsigned long seed) {
    root_len = strlen(below);
    memcpy(root, below, root_len + 1);
    haze_seed = seed;
    atomic_store(&hazed, 0);
    haze_per_million = per_million;
}

/* Has the files below a directory lie on a file system of this kind, by its number in linux/magic.h. */
void shim_file_system(const char *below, long kind) {
    root_len = strlen(below);
    memcpy(root, below, root_len + 1);
    file_system = kind;
}

/* Has the kernel not know locks of open file descriptions: they fail with this error. */
void shim_no_ofd_locks(int error) { ofd_error = error; }

long shim_count(int call) { return atomic_load(&counts[call]); }

static int path_is_below(const char *path) {
    return root_len && path && strncmp(path, root, root_len) == 0;
}

static int file_is_below(int fd) {
    char name[64], path[4096];
    if (!root_len || fd < 0) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(name, path, sizeof path - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return path_is_below(path);
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Whether the next call fails: numbers as splitmix64 gives them. */
static int is_hazed(void) {
    if (!haze_per_million) return 0;
    unsigned long n = haze_seed + (atomic_fetch_add(&hazed, 1) + 1) * 0x9e3779b97f4a7c15ul;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ul;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebul;
    return (n ^ (n >> 31)) % 1000000 < haze_per_million;
}

static int meet(int call) {
    long count = atomic_fetch_add(&counts[call], 1) + 1;
    if (is_hazed()) {
        met_error = haze_errors[call];
        return FAIL;
    }
    met_error = armed_error;
    if (call != armed_call || (armed_forever ? count < armed_at : count != armed_at)) return PASS;
    if (armed_action == KILL_BEFORE) die();
    return armed_action;
}

#define STAND_IN(call, inside, type, failed, name, parameters, arguments) \
    type name parameters {                                                \
        static type(*real) parameters;                                    \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);    \
        int action = (inside) ? meet(call) : PASS;                        \
        if (action == FAIL) {                                             \
            errno = met_error;                                            \
            return failed;                                                \
        }                                                                 \
        if (action == LIE) return (type)0;                                \
        type result = real arguments;                                     \
        if (action == KILL_AFTER) die();                                  \
        return result;                                                    \
    }

int fstatfs(int fd, struct statfs *found) {
    static int (*real)(int, struct statfs *);
    if (!real) real = (int (*)(int, struct statfs *))dlsym(RTLD_NEXT, "fstatfs");
    int result = real(fd, found);
    if (result == 0 && file_system && file_is_below(fd)) found->f_type = file_system;
    return result;
}

int fcntl(int fd, int command, ...) {
    static int (*real)(int, int, ...);
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (ofd_error && (command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK)) {
        errno = ofd_error;
        return -1;
    }
    if (!real) real = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl");
    int locks = command == F_OFD_SETLK || command == F_OFD_GETLK;
    int action = locks && file_is_below(fd) ? meet(LOCK) : PASS;
    if (action == FAIL) {
        errno = met_error;
        return -1;
    }
    int result = real(fd, command, argument);
    if (action == KILL_AFTER) die();
    return result;
}

STAND_IN(FSYNC, file_is_below(fd), int, -1, fsync, (int fd), (fd))
STAND_IN(FSYNC, file_is_below(fd), int, -1, fdatasync, (int fd), (fd))
STAND_IN(MSYNC, root_len, int, -1, msync, (void *at, size_t len, int flags), (at, len, flags))
STAND_IN(MMAP, file_is_below(fd), void *, MAP_FAILED, mmap64,
         (void *at, size_t len, int access, int flags, int fd, off64_t start),
         (at, len, access, flags, fd, start))
STAND_IN(FALLOCATE, file_is_below(fd), int, -1, fallocate, (int fd, int mode, off_t start, off_t len),
         (fd, mode, start, len))
STAND_IN(FTRUNCATE, file_is_below(fd), int, -1, ftruncate64, (int fd, off64_t len), (fd, len))
STAND_IN(PWRITE, file_is_below(fd), ssize_t, -1, pwrite64,
         (int fd, const void *from, size_t len, off64_t start), (fd, from, len, start))
STAND_IN(PREAD, file_is_below(fd), ssize_t, -1, pread64,
         (int fd, void *to, size_t len, off64_t start), (fd, to, len, start))
STAND_IN(RENAME, path_is_below(from), int, -1, rename, (const char *from, const char *to), (from, to))
STAND_IN(UNLINK, path_is_below(path), int, -1, unlink, (const char *path), (path))
STAND_IN(MKDIR, path_is_below(path), int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
STAND_IN(SYNCFS, file_is_below(fd), int, -1, syncfs, (int fd), (fd))
STAND_IN(OPENDIR, path_is_below(path), DIR *, NULL, opendir, (const char *path), (path))
STAND_IN(READDIR, file_is_below(dirfd(list)), struct dirent64 *, NULL, readdir64, (DIR *list), (list))
/* Python seeks in files too, but not for data. */
STAND_IN(LSEEK, (what == SEEK_DATA || what == SEEK_HOLE) && file_is_below(fd), off_t, -1, lseek,
         (int fd, off_t start, int what), (fd, start, what))
STAND_IN(FCHMOD, file_is_below(fd), int, -1, fchmod, (int fd, mode_t mode), (fd, mode))
STAND_IN(LINKAT, path_is_below(to), int, -1, linkat, (int at, const char *from, int in, const char *to, int flags),
         (at, from, in, to, flags))
/* Asked whether the call exists, Rust gives no path, which the header says nobody does. */
static int is_looked_at(int at, const char *volatile given) {
    const char *path = given;
    return path && *path ? path_is_below(path) : file_is_below(at);
}

STAND_IN(STAT, is_looked_at(at, path), int, -1, statx,
         (int at, const char *path, int flags, unsigned mask, struct statx *to), (at, path, flags, mask, to))

int pthread_create(pthread_t *thread, const pthread_attr_t *with, void *(*run)(void *), void *given) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    int action = root_len ? meet(THREAD) : PASS;
    if (action == FAIL) return met_error;
    int result = real(thread, with, run, given);
    if (action == KILL_AFTER) die();
    return result;
}

int open64(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    int action = path_is_below(path) ? meet(OPEN) : PASS;
    if (action == FAIL) {
        errno = met_error;
        return -1;
    }
    int result = real(path, flags, mode);
    if (action == KILL_AFTER) die();
    return result;
}
