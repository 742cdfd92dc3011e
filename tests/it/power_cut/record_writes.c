// Records every change of the files under a directory, in order, with what was synced. Loaded with LD_PRELOAD into the
// server; RECORD_DIR is the directory and RECORD_LOG the file that the records are appended to.
//
// A record is one byte for the operation, the inode, an offset, and two strings with their lengths in front. It is written
// after the operation has succeeded, under one lock, so that the order of the records is an order of the operations.
//
// Once there is a file RECORD_END, the process kills itself where it would sync something, so that what it wrote last is
// not synced. It holds the lock then: no operation is without its record, as it could be after a kill from outside.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *directory;
static const char *end_path;
static int log_fd = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void start(void) {
  directory = getenv("RECORD_DIR");
  end_path = getenv("RECORD_END");
  const char *path = getenv("RECORD_LOG");
  if (directory && path) log_fd = REAL(open64)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static void record(char operation, uint64_t inode, uint64_t offset, const void *first, uint64_t first_length,
                   const void *second, uint64_t second_length) {
  char head[33];
  head[0] = operation;
  memcpy(head + 1, &inode, 8);
  memcpy(head + 9, &offset, 8);
  memcpy(head + 17, &first_length, 8);
  memcpy(head + 25, &second_length, 8);
  struct iovec parts[3] = {{head, sizeof head}, {(void *)first, first_length}, {(void *)second, second_length}};
  if (REAL(writev)(log_fd, parts, 3) < 0) abort();
}

// True for a path in the directory; `absolute` receives it whole.
static int is_inside(const char *path, char *absolute) {
  if (log_fd < 0) return 0;
  if (path[0] == '/') {
    snprintf(absolute, PATH_MAX, "%s", path);
  } else {
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) return 0;
    if (snprintf(absolute, PATH_MAX, "%s/%s", here, path) >= PATH_MAX) return 0;
  }
  size_t length = strlen(directory);
  return strncmp(absolute, directory, length) == 0 && (absolute[length] == '/' || absolute[length] == 0);
}

static int path_at(int at, const char *path, char *absolute) {
  if (at == AT_FDCWD || path[0] == '/') return is_inside(path, absolute);
  char link[64], base[PATH_MAX], whole[PATH_MAX * 2];
  snprintf(link, sizeof link, "/proc/self/fd/%d", at);
  ssize_t length = readlink(link, base, sizeof base - 1);
  if (length < 0) return 0;
  base[length] = 0;
  snprintf(whole, sizeof whole, "%s/%s", base, path);
  return is_inside(whole, absolute);
}

static int file_of(int fd, uint64_t *inode) {
  if (log_fd < 0) return 0;
  char link[64], path[PATH_MAX], absolute[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  struct stat stat;
  if (path[0] != '/' || !is_inside(path, absolute) || fstat(fd, &stat) != 0) return 0;
  *inode = stat.st_ino;
  return 1;
}

static int opened(int fd, const char *absolute, int flags) {
  struct stat stat;
  if (fd >= 0 && fstat(fd, &stat) == 0 && (flags & (O_CREAT | O_TRUNC)) && S_ISREG(stat.st_mode)) {
    record('c', stat.st_ino, 0, absolute, strlen(absolute), 0, 0);
    if (flags & O_TRUNC) record('t', stat.st_ino, 0, 0, 0, 0, 0);
  }
  return fd;
}

#define MODE                                  \
  mode_t mode = 0;                            \
  if (flags & (O_CREAT | O_TMPFILE)) {        \
    va_list rest;                             \
    va_start(rest, flags);                    \
    mode = va_arg(rest, mode_t);              \
    va_end(rest);                             \
  }

#define CHANGE(call, note)                    \
  pthread_mutex_lock(&lock);                  \
  __typeof__(call) result = call;             \
  if (result >= 0) { note; }                  \
  pthread_mutex_unlock(&lock);                \
  return result;

static int end_is_asked_for(void) { return end_path && access(end_path, F_OK) == 0; }

#define SYNC(call)                            \
  uint64_t inode;                             \
  if (!file_of(fd, &inode)) return call;      \
  pthread_mutex_lock(&lock);                  \
  if (end_is_asked_for()) raise(SIGKILL);     \
  int result = call;                          \
  if (result >= 0) record('s', inode, 0, 0, 0, 0, 0); \
  pthread_mutex_unlock(&lock);                \
  return result;

int open64(const char *path, int flags, ...) {
  MODE char absolute[PATH_MAX];
  if (!is_inside(path, absolute)) return REAL(open64)(path, flags, mode);
  CHANGE(REAL(open64)(path, flags, mode), opened(result, absolute, flags))
}

int open(const char *path, int flags, ...) {
  MODE char absolute[PATH_MAX];
  if (!is_inside(path, absolute)) return REAL(open)(path, flags, mode);
  CHANGE(REAL(open)(path, flags, mode), opened(result, absolute, flags))
}

ssize_t write(int fd, const void *bytes, size_t count) {
  uint64_t inode;
  if (!file_of(fd, &inode)) return REAL(write)(fd, bytes, count);
  struct stat stat;
  fstat(fd, &stat);
  uint64_t at = fcntl(fd, F_GETFL) & O_APPEND ? (uint64_t)stat.st_size : (uint64_t)lseek(fd, 0, SEEK_CUR);
  CHANGE(REAL(write)(fd, bytes, count), record('w', inode, at, 0, 0, bytes, result))
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  uint64_t inode;
  if (!file_of(fd, &inode)) return REAL(pwrite64)(fd, bytes, count, at);
  CHANGE(REAL(pwrite64)(fd, bytes, count, at), record('w', inode, at, 0, 0, bytes, result))
}

int ftruncate64(int fd, off64_t length) {
  uint64_t inode;
  if (!file_of(fd, &inode)) return REAL(ftruncate64)(fd, length);
  CHANGE(REAL(ftruncate64)(fd, length), record('t', inode, length, 0, 0, 0, 0))
}

int fsync(int fd) { SYNC(REAL(fsync)(fd)) }

int fdatasync(int fd) { SYNC(REAL(fdatasync)(fd)) }

int rename(const char *from, const char *to) {
  char first[PATH_MAX], second[PATH_MAX];
  if (!is_inside(from, first) || !is_inside(to, second)) return REAL(rename)(from, to);
  CHANGE(REAL(rename)(from, to), record('r', 0, 0, first, strlen(first), second, strlen(second)))
}

int mkdir(const char *path, mode_t mode) {
  char absolute[PATH_MAX];
  if (!is_inside(path, absolute)) return REAL(mkdir)(path, mode);
  CHANGE(REAL(mkdir)(path, mode), record('m', 0, 0, absolute, strlen(absolute), 0, 0))
}

int unlink(const char *path) {
  char absolute[PATH_MAX];
  if (!is_inside(path, absolute)) return REAL(unlink)(path);
  CHANGE(REAL(unlink)(path), record('u', 0, 0, absolute, strlen(absolute), 0, 0))
}

int rmdir(const char *path) {
  char absolute[PATH_MAX];
  if (!is_inside(path, absolute)) return REAL(rmdir)(path);
  CHANGE(REAL(rmdir)(path), record('u', 0, 0, absolute, strlen(absolute), 0, 0))
}

int unlinkat(int at, const char *path, int flags) {
  char absolute[PATH_MAX];
  if (!path_at(at, path, absolute)) return REAL(unlinkat)(at, path, flags);
  CHANGE(REAL(unlinkat)(at, path, flags), record('u', 0, 0, absolute, strlen(absolute), 0, 0))
}
