#include "report/tensorboard.h"

#include "base/log.h"

#ifdef CMN_PROTOBUF_C

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "event.pb-c.h"
#include "mpi/files.h"
#include "report/backlog.h"

enum { COLUMNS = 32 }; /* room for the values of a row */

static const long long LAST = 9999999999; /* the largest number of ten digits */

static const char begin[] = "events.out.tfevents.";

struct cmn_tensorboard {
    struct cmn_backlog log;
};

/* Returns the CRC with Castagnoli's polynomial, as in iSCSI (RFC 3720). It works bit by bit, which
 * is fast enough for one record per row. */
static uint32_t crc32c(const uint8_t *data, size_t bytes)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
        }
    }
    return ~crc;
}

/* Writes the value in little-endian order. */
static void put(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

/* Writes the masked CRC of TFRecord: rotated right by 15 bits, plus a constant. */
static void put_checksum(uint8_t *to, const uint8_t *data, size_t bytes)
{
    uint32_t crc = crc32c(data, bytes);

    put(to, (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8), 4);
}

/* Implements cmn_backlog.append. */
static int append(struct cmn_backlog *log, const void *record, size_t bytes)
{
    return cmn_append("event file", log->file, log->fd, record, bytes);
}

/* Returns a record of TensorFlow's format TFRecord: the length of the data in 8 bytes, the length's
 * checksum, the data, the data's checksum. Sets the event's time. The caller frees the record. */
static uint8_t *make_record(Cmn__Event *event, size_t *size)
{
    size_t length = cmn__event__get_packed_size(event), bytes = 8 + 4 + length + 4;
    uint8_t *record;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    event->wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    record = cmn_malloc(bytes, 1);
    put(record, length, 8);
    put_checksum(record + 8, record, 8);
    cmn__event__pack(event, record + 12);
    put_checksum(record + 12 + length, record + 12, length);
    *size = bytes;
    return record;
}

static int append_event(struct cmn_tensorboard *t, Cmn__Event *event)
{
    size_t bytes;
    uint8_t *record = make_record(event, &bytes);
    int result = append(&t->log, record, bytes);

    free(record);
    return result;
}

/* Writes the version, and a START record, at which TensorBoard drops later rows of earlier
 * files. */
static int append_head(struct cmn_tensorboard *t, long first)
{
    Cmn__Event version = CMN__EVENT__INIT, start = CMN__EVENT__INIT;
    Cmn__SessionLog session = CMN__SESSION_LOG__INIT;
    char text[] = "brain.Event:2";

    version.file_version = text;
    session.status = CMN__SESSION_LOG__STATUS__START;
    start.has_step = 1;
    start.step = first + 1;
    start.session_log = &session;
    return append_event(t, &version) || append_event(t, &start) ? -1 : 0;
}

/* Returns the current time, or if that is later, one second after the latest file of the folder:
 * TensorBoard reads files in the order of their names, and the clocks of two hosts may differ. */
static long long time_for_name(const char *folder)
{
    DIR *files = opendir(folder);
    long long when = (long long)time(NULL);
    const struct dirent *file;

    while (files && (file = readdir(files))) {
        if (!strncmp(file->d_name, begin, sizeof begin - 1)) {
            long long other = strtoll(file->d_name + sizeof begin - 1, NULL, 10);
            when = other >= when && other < LAST ? other + 1 : when;
        }
    }
    if (files) {
        closedir(files);
    }
    return when;
}

struct cmn_tensorboard *cmn_tensorboard_open(const char *folder, long first)
{
    struct cmn_tensorboard *t;
    char host[64] = "";

    if (cmn_files_make_folder(folder)) {
        cmn_fail("cmn_tensorboard=%s: the folder cannot be made: %s", folder, strerror(errno));
        return NULL;
    }
    gethostname(host, sizeof host - 1);
    t = cmn_calloc(1, sizeof *t);
    t->log.append = append;
    t->log.file = cmn_format("%s/%s%010lld.%s.%ld", folder, begin, time_for_name(folder), host,
                             (long)getpid());
    t->log.fd = cmn_open_in_place("event file", t->log.file, O_WRONLY | O_CREAT | O_EXCL);
    if (t->log.fd < 0 || append_head(t, first)) {
        cmn_tensorboard_close(t);
        return NULL;
    }
    return t;
}

void cmn_tensorboard_row(struct cmn_tensorboard *t, const struct cmn_row *row)
{
    Cmn__Event event = CMN__EVENT__INIT;
    Cmn__Summary summary = CMN__SUMMARY__INIT;
    Cmn__Summary__Value value[COLUMNS], *list[COLUMNS];
    const struct cmn_column *column;
    uint8_t *record;
    size_t bytes;

    for (int i = 0; (column = cmn_column_at(i)) && summary.n_value < COLUMNS; i++) {
        size_t n = summary.n_value;
        if (column->at != offsetof(struct cmn_row, iteration) && cmn_column_known(column, row)) {
            cmn__summary__value__init(&value[n]);
            value[n].tag = (char *)(uintptr_t)column->name;
            value[n].simple_value = (float)cmn_log_number(cmn_column_get(column, row));
            list[n] = &value[n];
            summary.n_value++;
        }
    }
    summary.value = list;
    event.has_step = 1;
    event.step = row->iteration;
    event.summary = &summary;
    record = make_record(&event, &bytes);
    cmn_backlog_add(&t->log, record, bytes);
    free(record);
}

int cmn_tensorboard_sync(const struct cmn_tensorboard *t)
{
    return cmn_sync_in_place(t->log.fd);
}

int cmn_tensorboard_close(struct cmn_tensorboard *t)
{
    int result = t ? cmn_backlog_close(&t->log) : 0;

    free(t);
    return result;
}

#else

struct cmn_tensorboard *cmn_tensorboard_open(const char *folder, long first)
{
    (void)first;
    cmn_fail("cmn_tensorboard=%s: this program was built without protobuf-c, which writes the "
             "event file: run `make deps FOR=tensorboard` (Debian: libprotobuf-c-dev, "
             "protobuf-c-compiler and protobuf-compiler), then `make`",
             folder);
    return NULL;
}

void cmn_tensorboard_row(struct cmn_tensorboard *t, const struct cmn_row *row)
{
    (void)t;
    (void)row;
}

int cmn_tensorboard_sync(const struct cmn_tensorboard *t)
{
    (void)t;
    return 0;
}

int cmn_tensorboard_close(struct cmn_tensorboard *t)
{
    (void)t;
    return 0;
}

#endif
