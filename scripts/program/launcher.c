/* The first part of the one-file program: it unpacks the rest of its file once, and becomes the Python in it.
 *
 * The file is this launcher, an index, the contents, and a footer (scripts/program/archive.py writes them). An index line
 * is "MODE SIZE PATH", in octal and decimal; the contents, in the order of the index, are one zstd frame.
 *
 * The files lie in a folder of the user's cache, named by the SHA-256 of the index and the contents. Each start compares
 * their sizes with the index, and writes those that differ or are gone: after an interrupted start, after a cleaner of
 * temporary files. The process holds a shared lock on the folder, by which systemd-tmpfiles leaves it alone. No process
 * stays between the caller and the broker, so that signals and exit codes need no help.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define NAME "fencepost"
#define MAGIC "FENCEPOST-FILE-1"
#define EXIT_NOT_STARTED 1
#define CHUNK (1 << 20)

struct footer {
    uint64_t index_length;
    uint64_t contents_length;
    char id[32];
    char magic[16];
};

static const char *index_text, *contents;
static struct footer footer;
static int has_proc;

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs(NAME ": ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    exit(EXIT_NOT_STARTED);
}

/* The next line of the index; 0 at its end. */
static int next_entry(const char **at, unsigned *mode, uint64_t *size, char path[PATH_MAX]) {
    const char *end = memchr(*at, '\n', index_text + footer.index_length - *at);
    if (end == NULL)
        return 0;
    char *rest;
    *mode = strtoul(*at, &rest, 8);
    *size = strtoull(rest, &rest, 10);
    size_t length = end - ++rest;
    if (length >= PATH_MAX)
        fail("its own index is damaged; get the file again");
    memcpy(path, rest, length);
    path[length] = 0;
    *at = end + 1;
    return 1;
}

static void map_own_file(void) {
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    has_proc = file >= 0;
    if (!has_proc)
        file = open((const char *)getauxval(AT_EXECFN), O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0)
        fail("cannot read its own file: %s", strerror(errno));
    char *whole = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (whole == MAP_FAILED)
        fail("cannot read its own file: %s", strerror(errno));
    memcpy(&footer, whole + status.st_size - sizeof footer, sizeof footer);
    uint64_t before = status.st_size - sizeof footer;
    if (memcmp(footer.magic, MAGIC, sizeof footer.magic) != 0 || footer.contents_length > before ||
        footer.index_length > before - footer.contents_length)
        fail("its own file is incomplete; get it again");
    contents = whole + before - footer.contents_length;
    index_text = contents - footer.index_length;
}

static int matches(int folder, const char *path, uint64_t size) {
    struct stat status;
    return fstatat(folder, path, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_size == size;
}

static int is_complete(int folder) {
    const char *at = index_text;
    unsigned mode;
    uint64_t size;
    char path[PATH_MAX];
    while (next_entry(&at, &mode, &size, path))
        if (!matches(folder, path, size))
            return 0;
    return 1;
}

static void make_parents(int folder, char *path) {
    for (char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdirat(folder, path, 0700);
        *slash = '/';
    }
}

/* Write the files whose sizes differ. Returns -1 with errno. */
static int unpack(int folder) {
    static char buffer[CHUNK];
    ZSTD_DStream *stream = ZSTD_createDStream();
    ZSTD_inBuffer input = {contents, footer.contents_length, 0};
    const char *at = index_text;
    unsigned mode;
    uint64_t size;
    char path[PATH_MAX];
    while (next_entry(&at, &mode, &size, path)) {
        int file = -1;
        if (!matches(folder, path, size)) {
            make_parents(folder, path);
            unlinkat(folder, path, 0); /* not truncated: another process may have it mapped */
            file = openat(folder, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
            if (file < 0)
                return -1;
        }
        for (uint64_t left = size; left > 0;) {
            ZSTD_outBuffer output = {buffer, left < CHUNK ? left : CHUNK, 0};
            size_t read_before = input.pos;
            if (ZSTD_isError(ZSTD_decompressStream(stream, &output, &input)) ||
                (output.pos == 0 && input.pos == read_before))
                fail("its own file is damaged; get it again");
            for (size_t written = 0; file >= 0 && written < output.pos;) {
                ssize_t count = write(file, buffer + written, output.pos - written);
                if (count < 0 && errno != EINTR)
                    return -1;
                written += count > 0 ? count : 0;
            }
            left -= output.pos;
        }
        if (file >= 0 && close(file) != 0)
            return -1;
    }
    ZSTD_freeDStream(stream);
    return 0;
}

/* Open a folder, made if it is not there; -1 with errno, also if others can write to it. */
static int open_own(int parent, const char *name) {
    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST)
        return -1;
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (folder < 0 || fstat(folder, &status) != 0)
        return -1;
    if (status.st_uid != geteuid() || status.st_mode & 022) {
        close(folder);
        errno = EPERM;
        return -1;
    }
    return folder;
}

/* Open the folder above the cache: of root or of this user, and nobody else can rename what this user makes there. */
static int open_above(const char *path) {
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat status;
    if (folder < 0 || fstat(folder, &status) != 0)
        return -1;
    if ((status.st_uid != 0 && status.st_uid != geteuid()) || (status.st_mode & S_IWOTH && !(status.st_mode & S_ISVTX))) {
        close(folder);
        errno = EPERM;
        return -1;
    }
    return folder;
}

/* Unpack into a folder of the cache if it is not there yet; returns the locked folder, or -1 with errno. */
static int prepare(const char *above, const char *name) {
    int parent = open_above(above);
    int cache = parent < 0 ? -1 : open_own(parent, name);
    char id[sizeof footer.id + 1] = "";
    memcpy(id, footer.id, sizeof footer.id);
    int folder = cache < 0 ? -1 : open_own(cache, id);
    if (folder < 0 || flock(folder, LOCK_SH) != 0)
        return -1;
    if (!is_complete(folder)) {
        int lock = openat(cache, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (lock < 0 || flock(lock, LOCK_EX) != 0)
            return -1;
        if (unpack(folder) != 0)
            return -1;
        close(lock);
    }
    fcntl(folder, F_SETFD, 0); /* the lock lives as long as the process */
    close(cache);
    close(parent);
    return folder;
}

/* Certificates of authorities: OpenSSL knows only the place of the system on which it was built. */
static void name_authorities(void) {
    static const char *const bundles[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                          "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    if (getenv("SSL_CERT_FILE") != NULL || getenv("SSL_CERT_DIR") != NULL)
        return;
    for (size_t i = 0; i < sizeof bundles / sizeof *bundles; i++)
        if (access(bundles[i], R_OK) == 0) {
            setenv("SSL_CERT_FILE", bundles[i], 1);
            return;
        }
}

/* Become the program in this place; returns if that is impossible. */
static void try_place(const char *above, const char *name, char **arguments, int count) {
    static char python[PATH_MAX], script[PATH_MAX], programs[PATH_MAX];
    const char *format = "%s/%s/%.32s/bin/%s";
    if (snprintf(python, PATH_MAX, format, above, name, footer.id, "python3") >= PATH_MAX ||
        snprintf(script, PATH_MAX, format, above, name, footer.id, NAME) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return;
    }
    int folder = prepare(above, name);
    if (folder < 0)
        return;
    snprintf(programs, PATH_MAX, format, above, name, footer.id, "");
    if (!has_proc) /* then the linker does not know $ORIGIN, from which the program names its libraries */
        setenv("LD_ORIGIN_PATH", programs, 1);
    char **all = calloc(count + 3, sizeof *all);
    all[0] = python;
    all[1] = script;
    for (int i = 1; i < count; i++)
        all[i + 1] = arguments[i];
    execv(python, all);
    int reason = errno; /* the file system allows no programs, or the C library is not there */
    close(folder);
    errno = reason;
}

int main(int count, char **arguments) {
    map_own_file();
    name_authorities();
    char home_cache[PATH_MAX], shared[64];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *temporary = getenv("TMPDIR");
    snprintf(shared, sizeof shared, NAME "-%u", (unsigned)geteuid());
    if (cache != NULL && *cache == '/')
        try_place(cache, NAME, arguments, count);
    if (home != NULL && *home == '/' && snprintf(home_cache, PATH_MAX, "%s/.cache", home) < PATH_MAX) {
        int above = open_above(home);
        if (above >= 0) {
            mkdirat(above, ".cache", 0700);
            close(above);
            try_place(home_cache, NAME, arguments, count);
        }
    }
    if (temporary != NULL && *temporary == '/')
        try_place(temporary, shared, arguments, count);
    mkdir("/tmp", 01777); /* in an empty root file system */
    try_place("/tmp", shared, arguments, count);
    fail("cannot unpack itself, nor run, in any of $XDG_CACHE_HOME, ~/.cache, $TMPDIR and /tmp (%s); set TMPDIR to a "
         "folder with 150 MB to spare, from which programs may run; Linux with glibc is needed", strerror(errno));
}
