"""event_files.py FOLDER [LOG.json]: reads TensorBoard's event files by the format alone, without our code and without protobuf.

Takes all files of the folder in the order of their names, as TensorBoard does, and checks each record's checksums. A START
drops the rows from its step on. Prints the iterations that remain. With a JSON log, fails where the rows are not the
log's, each value the same 32 bits.
"""
import json
import pathlib
import struct
import sys
import time


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        head = data[at:at + 8]
        length, = struct.unpack('<Q', head)
        record = data[at + 12:at + 12 + length]
        assert data[at + 8:at + 12] == struct.pack('<I', masked(head)), 'checksum of a length'
        assert data[at + 12 + length:at + 16 + length] == struct.pack('<I', masked(record)), 'checksum of a record'
        yield record
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """A protobuf message as (number, value): int, bytes, or the bytes of a fixed number."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            length = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            assert len(value) == length
        yield key >> 3, value


def read(folder):
    rows = []
    for file in sorted(pathlib.Path(folder).glob('events.out.tfevents.*')):
        for number, record in enumerate(records(file.read_bytes())):
            event = dict(fields(record))
            wall_time, = struct.unpack('<d', event[1])
            assert abs(wall_time - time.time()) < 86400
            assert (event.get(3) == b'brain.Event:2') == (number == 0), 'the first record is the version'
            if 7 in event:
                assert dict(fields(event[7])) == {1: 1}
                rows = [row for row in rows if row[0] < event[2]]
            if 5 in event:
                values = [dict(fields(value)) for one, value in fields(event[5]) if one == 1]
                rows.append((event[2], {value[1].decode(): value[2] for value in values}))
                assert len(values) == len(rows[-1][1]), 'a tag twice'
    return rows


def of_log(name):
    for row in json.load(open(name)):
        values = {key: value for key, value in row.items() if key not in ('iteration', 'ranks', 'straggler', 'skipped_steps', 'clipped_steps')}
        yield row['iteration'], {key: struct.pack('<f', value) if value is not None else None for key, value in values.items()}


def same(one, other):
    nan = {key for key, value in other.items() if value is None}
    return one.keys() == other.keys() and all(
        one[key] == other[key] if key not in nan else struct.unpack('<f', one[key])[0] != struct.unpack('<f', one[key])[0] for key in one)


assert crc32c(b'123456789') == 0xE3069283  # as the catalogues of checksums have it
found = read(sys.argv[1])
print(*(iteration for iteration, _ in found))
if len(sys.argv) > 2:
    log = list(of_log(sys.argv[2]))
    assert len(found) == len(log), 'another number of rows'
    for (step, values), (iteration, wanted) in zip(found, log):
        assert step == iteration and same(values, wanted), f'row of iteration {iteration}: {values} for {wanted}'
