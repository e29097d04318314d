/* A disk that fails on demand, for a process that is started with this library in LD_PRELOAD.
 *
 * FAILING_DISK_DIR names a directory. FAILING_DISK_CONTROL names a file of orders for calls on that
 * directory and on the files in it; each call reads the orders again. Calls on other files work as
 * usual. An order is a line of three words, and a call obeys the first order that matches it:
 *
 *     CALL  WHAT  NUMBER
 *
 * CALL is write (write, pwrite, writev), sync (fsync, fdatasync), name (fsync of a directory),
 * truncate (ftruncate), rename, open (of files to write), read (read, pread), or any. Two more do
 * not depend on the directory: kernel opens the kernel's log, which a service manager may refuse;
 * listen adds a listening socket to an epoll instance. WHAT is
 *     fail    does nothing, and fails with this errno
 *     lie     makes the call, and still fails with this errno
 *     short   makes write and pwrite write at most this many bytes (no effect on other calls)
 *     stall   waits for this many milliseconds, and then makes the call
 *
 * If the file of orders is missing or empty, all calls work.
 *
 * FAILING_DISK_RECORD names a file to which each call under the directory adds a line: its CALL
 * (sync instead of name), and the path within the directory. The path of the directory itself is
 * ".". The line of a rename has the new name.
 *
 * FAILING_DISK_KERNEL_LOG names a file that takes the place of the kernel's log. Each line is a
 * record.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum what { WORK, FAIL, LIE, SHORT, STALL };

struct order {
    enum what what;
    long number;
};

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        abort();
    }
    return found;
}

static int is_ours(const char *path) {
    const char *directory = getenv("FAILING_DISK_DIR");
    if (directory == NULL || path == NULL) {
        return 0;
    }
    size_t length = strlen(directory);
    return strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Finds the path of an open file. Returns true if the file is in the directory. */
static int find_ours(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) {
        return 0;
    }
    path[length] = '\0';
    return is_ours(path);
}

static void record(const char *call, const char *path) {
    const char *file = getenv("FAILING_DISK_RECORD");
    int fd = file == NULL ? -1 : REAL(open)(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        return;
    }
    const char *name = path + strlen(getenv("FAILING_DISK_DIR"));
    char line[PATH_MAX + 32];
    int length = snprintf(line, sizeof line, "%s %s\n", call, *name == '/' ? name + 1 : ".");
    if (REAL(write)(fd, line, (size_t)length) != length) {
        abort();
    }
    REAL(close)(fd);
}

/* Returns the order for a call. */
static struct order ordered(const char *call) {
    struct order order = {WORK, 0};
    const char *control = getenv("FAILING_DISK_CONTROL");
    int fd = control == NULL ? -1 : REAL(open)(control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return order;
    }
    char text[1024];
    ssize_t length = REAL(read)(fd, text, sizeof text - 1);
    REAL(close)(fd);
    text[length < 0 ? 0 : length] = '\0';
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char of[16], what[16];
        long number;
        if (sscanf(line, "%15s %15s %ld", of, what, &number) != 3 || (strcmp(of, call) != 0 && strcmp(of, "any") != 0)) {
            continue;
        }
        order.what = strcmp(what, "fail") == 0    ? FAIL
                     : strcmp(what, "lie") == 0   ? LIE
                     : strcmp(what, "short") == 0 ? SHORT
                     : strcmp(what, "stall") == 0 ? STALL
                                                  : WORK;
        order.number = number;
        break;
    }
    return order;
}

static void stall(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Makes a call as the order says. The caller shortens a short write. */
#define CARRY_OUT(order, type, call)                                                                                   \
    do {                                                                                                               \
        if ((order).what == FAIL) {                                                                                    \
            errno = (int)(order).number;                                                                               \
            return -1;                                                                                                 \
        }                                                                                                              \
        if ((order).what == STALL) {                                                                                   \
            stall((order).number);                                                                                     \
        }                                                                                                              \
        type result_ = (call);                                                                                         \
        if ((order).what == LIE) {                                                                                     \
            errno = (int)(order).number;                                                                               \
            return -1;                                                                                                 \
        }                                                                                                              \
        return result_;                                                                                                \
    } while (0)

static struct order for_fd(int fd, const char *call) {
    struct order order = {WORK, 0};
    int before = errno;
    char path[PATH_MAX];
    if (find_ours(fd, path)) {
        record(call, path);
        order = ordered(call);
        if (order.what == STALL) {
            record("stall", path);
        }
    }
    errno = before;
    return order;
}

static struct order for_path(const char *path, const char *call) {
    struct order order = {WORK, 0};
    if (is_ours(path)) {
        record(call, path);
        order = ordered(call);
    }
    return order;
}

static size_t shortened(struct order order, size_t size) {
    return order.what == SHORT && size > (size_t)order.number ? (size_t)order.number : size;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    struct order order = for_fd(fd, "write");
    CARRY_OUT(order, ssize_t, REAL(write)(fd, bytes, shortened(order, size)));
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    struct order order = for_fd(fd, "write");
    CARRY_OUT(order, ssize_t, REAL(pwrite)(fd, bytes, shortened(order, size), offset));
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    struct order order = for_fd(fd, "write");
    CARRY_OUT(order, ssize_t, REAL(pwrite64)(fd, bytes, shortened(order, size), offset));
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    struct order order = for_fd(fd, "write");
    CARRY_OUT(order, ssize_t, REAL(writev)(fd, pieces, count));
}

/* How far this process has read the file in place of the kernel's log. */
static off_t log_offset;

static int is_log(int fd) {
    struct stat found;
    int before = errno;
    int is = getenv("FAILING_DISK_KERNEL_LOG") != NULL && fstat(fd, &found) == 0 && S_ISCHR(found.st_mode)
             && found.st_rdev == makedev(1, 11);
    errno = before;
    return is;
}

static off_t log_size(void) {
    struct stat found;
    return stat(getenv("FAILING_DISK_KERNEL_LOG"), &found) == 0 ? found.st_size : 0;
}

/* Reads one line of the log. */
static ssize_t read_log(char *bytes, size_t size) {
    int fd = REAL(open)(getenv("FAILING_DISK_KERNEL_LOG"), O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : REAL(pread64)(fd, bytes, size, log_offset);
    if (fd >= 0) {
        REAL(close)(fd);
    }
    char *end = length > 0 ? memchr(bytes, '\n', (size_t)length) : NULL;
    if (end == NULL) {
        errno = EAGAIN;
        return -1;
    }
    log_offset += end + 1 - bytes;
    return end + 1 - bytes;
}

off64_t lseek64(int fd, off64_t offset, int whence) {
    if (is_log(fd)) {
        return log_offset = whence == SEEK_END ? log_size() : offset;
    }
    return REAL(lseek64)(fd, offset, whence);
}

/* glibc declares that poll only writes its argument, so gcc takes the descriptor for unset. */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

int poll(struct pollfd *files, nfds_t count, int timeout) {
    if (count == 1 && is_log(files[0].fd)) {
        while (log_size() <= log_offset) {
            stall(10);
        }
        files[0].revents = POLLIN;
        return 1;
    }
    return REAL(poll)(files, count, timeout);
}

ssize_t read(int fd, void *bytes, size_t size) {
    if (is_log(fd)) {
        return read_log(bytes, size);
    }
    struct order order = for_fd(fd, "read");
    CARRY_OUT(order, ssize_t, REAL(read)(fd, bytes, size));
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t offset) {
    struct order order = for_fd(fd, "read");
    CARRY_OUT(order, ssize_t, REAL(pread64)(fd, bytes, size, offset));
}

int fsync(int fd) {
    struct order order = for_fd(fd, "sync");
    char path[PATH_MAX];
    struct stat found;
    if (order.what == WORK && find_ours(fd, path) && fstat(fd, &found) == 0 && S_ISDIR(found.st_mode)) {
        order = ordered("name");
    }
    CARRY_OUT(order, int, REAL(fsync)(fd));
}

int fdatasync(int fd) {
    struct order order = for_fd(fd, "sync");
    CARRY_OUT(order, int, REAL(fdatasync)(fd));
}

int ftruncate(int fd, off_t length) {
    struct order order = for_fd(fd, "truncate");
    CARRY_OUT(order, int, REAL(ftruncate)(fd, length));
}

int ftruncate64(int fd, off64_t length) {
    struct order order = for_fd(fd, "truncate");
    CARRY_OUT(order, int, REAL(ftruncate64)(fd, length));
}

int rename(const char *from, const char *to) {
    struct order order = for_path(to, "rename");
    CARRY_OUT(order, int, REAL(rename)(from, to));
}

int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    struct order order = {WORK, 0};
    if (strcmp(path, "/dev/kmsg") == 0) {
        order = ordered("kernel");
        if (getenv("FAILING_DISK_KERNEL_LOG") != NULL) {
            flags = O_PATH | O_CLOEXEC;
        }
    } else if ((flags & O_ACCMODE) != O_RDONLY) {
        order = for_path(path, "open");
    }
    CARRY_OUT(order, int, REAL(open64)(path, flags, mode));
}

int epoll_ctl(int reactor, int what, int fd, struct epoll_event *event) {
    struct order order = {WORK, 0};
    int before = errno, listens = 0;
    socklen_t size = sizeof listens;
    if (what == EPOLL_CTL_ADD && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens) {
        order = ordered("listen");
    }
    errno = before;
    CARRY_OUT(order, int, REAL(epoll_ctl)(reactor, what, fd, event));
}
