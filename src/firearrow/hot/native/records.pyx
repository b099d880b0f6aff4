# cython: language_level=3, boundscheck=False, wraparound=False, binding=True
"""Compiled twin of `firearrow.hot.reference.records`; the layout is drawn there.

A record that is not sound is handed to the reference twin, which names what is wrong with it.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from firearrow.hot.native.endian cimport i16, i32, i64, w32, w64, wbytes
from firearrow.hot.native.text cimport crc32_of

from firearrow.hot.layout import Scan, ScannedRecord, Selected, Tiling
from firearrow.hot.reference import records as _reference

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)
    bint PyUnicode_IS_ASCII(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    void* PyUnicode_DATA(object)

cdef object _new_tuple = tuple.__new__
cdef object _Scanned = ScannedRecord

cdef int32_t MAGIC_V1 = -626843481
cdef int32_t MAGIC_V2 = -626843477
cdef int32_t MAGIC_BLANK = -875286124
cdef int RECORD_BYTES_MIN = 91


cdef class Record:
    def __init__(
        self,
        str topic not None,
        bytes body not None,
        str properties not None="",
        *,
        int queue_id=0,
        int flag=0,
        int64_t queue_offset=0,
        int64_t physical_offset=0,
        int sys_flag=0,
        int64_t born_timestamp=0,
        bytes born_ip not None=b"\x7f\x00\x00\x01",
        int born_port=0,
        int64_t store_timestamp=0,
        bytes store_ip not None=b"\x7f\x00\x00\x01",
        int store_port=0,
        int reconsume_times=0,
        int64_t prepared_offset=0,
        int body_crc=0,
        int size=0,
    ):
        self.topic = topic
        self.body = body
        self.properties = properties
        self.queue_id = queue_id
        self.flag = flag
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_ip = born_ip
        self.born_port = born_port
        self.store_timestamp = store_timestamp
        self.store_ip = store_ip
        self.store_port = store_port
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.body_crc = body_crc
        self.size = size

    def __repr__(self):
        return _reference.Record.__repr__(self)


def encode_record(record):
    return _reference.encode_with(write_record, record)


cdef int64_t write_raw(
    uint8_t* p,
    int64_t room,
    const char* topic,
    Py_ssize_t topic_bytes,
    const char* body,
    Py_ssize_t body_bytes,
    const char* properties,
    Py_ssize_t properties_bytes,
    int queue_id,
    int flag,
    int64_t queue_offset,
    int64_t physical_offset,
    int sys_flag,
    int64_t born_timestamp,
    const char* born_host,
    Py_ssize_t born_bytes,
    int64_t store_timestamp,
    const char* store_host,
    Py_ssize_t store_bytes,
    int reconsume_times,
    int64_t prepared_offset,
) noexcept nogil:
    """One record at `p`; 0 if it needs more than `room`. Everything else was checked before."""
    cdef int topic_length_bytes = 1 if topic_bytes <= 127 else 2
    cdef int64_t size = (
        74 + born_bytes + store_bytes + body_bytes + topic_length_bytes + topic_bytes
        + properties_bytes
    )
    if size > room or size > 2147483647:
        return 0
    sys_flag &= ~0x30
    if born_bytes == 20:
        sys_flag |= 0x10
    if store_bytes == 20:
        sys_flag |= 0x20
    p = w32(p, <uint32_t>size)
    p = w32(p, <uint32_t>(MAGIC_V1 if topic_length_bytes == 1 else MAGIC_V2))
    p = w32(p, crc32_of(<const uint8_t*>body, body_bytes) & 0x7FFFFFFF)
    p = w32(p, <uint32_t>queue_id)
    p = w32(p, <uint32_t>flag)
    p = w64(p, <uint64_t>queue_offset)
    p = w64(p, <uint64_t>physical_offset)
    p = w32(p, <uint32_t>sys_flag)
    p = w64(p, <uint64_t>born_timestamp)
    p = wbytes(p, born_host, born_bytes)
    p = w64(p, <uint64_t>store_timestamp)
    p = wbytes(p, store_host, store_bytes)
    p = w32(p, <uint32_t>reconsume_times)
    p = w64(p, <uint64_t>prepared_offset)
    p = w32(p, <uint32_t>body_bytes)
    p = wbytes(p, body, body_bytes)
    if topic_length_bytes == 2:
        p[0] = <uint8_t>(topic_bytes >> 8)
        p += 1
    p[0] = <uint8_t>topic_bytes
    p = wbytes(p + 1, topic, topic_bytes)
    p[0] = <uint8_t>(properties_bytes >> 8)
    p[1] = <uint8_t>properties_bytes
    wbytes(p + 2, properties, properties_bytes)
    return size


def write_record(
    buffer,
    position,
    stop,
    bytes topic not None,
    body,
    bytes properties not None,
    queue_id,
    flag,
    queue_offset,
    physical_offset,
    sys_flag,
    born_timestamp,
    bytes born_host not None,
    store_timestamp,
    bytes store_host not None,
    reconsume_times,
    prepared_offset,
):
    cdef Py_buffer out
    cdef Py_buffer content
    cdef int64_t size, at = position, end = stop
    if PyBytes_GET_SIZE(topic) > 32767 or PyBytes_GET_SIZE(properties) > 32767:
        return _reference.write_record(
            buffer, position, stop, topic, body, properties, queue_id, flag, queue_offset,
            physical_offset, sys_flag, born_timestamp, born_host, store_timestamp, store_host,
            reconsume_times, prepared_offset)  # which says what is too long
    PyObject_GetBuffer(buffer, &out, PyBUF_WRITABLE)
    try:
        if not 0 <= at <= end <= out.len:
            raise ValueError(f"room {at} to {end} outside a buffer of {out.len} bytes")
        PyObject_GetBuffer(body, &content, PyBUF_SIMPLE)
        try:
            size = write_raw(
                <uint8_t*>out.buf + at, end - at,
                PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic),
                <const char*>content.buf, content.len,
                PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties),
                queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp,
                PyBytes_AS_STRING(born_host), PyBytes_GET_SIZE(born_host),
                store_timestamp,
                PyBytes_AS_STRING(store_host), PyBytes_GET_SIZE(store_host),
                reconsume_times, prepared_offset)
        except OverflowError as error:
            raise _reference.RecordError(f"a field does not fit its place: {error}") from None
        finally:
            PyBuffer_Release(&content)
    finally:
        PyBuffer_Release(&out)
    return size


cdef bint measure(const uint8_t* p, int size, int magic, Parts* parts) noexcept nogil:
    """Find the parts of a record of `size` bytes; False if they do not add up."""
    cdef int sys_flag = i32(p + 36)
    cdef int at, topic_length_bytes = 1 if magic == MAGIC_V1 else 2
    parts.born_bytes = 16 if sys_flag & 0x10 else 4
    parts.store_bytes = 16 if sys_flag & 0x20 else 4
    at = 48 + parts.born_bytes + 12 + parts.store_bytes + 20
    if size < at + topic_length_bytes + 2:
        return False
    parts.body_bytes = i32(p + at - 4)
    parts.body = at
    if not 0 <= parts.body_bytes <= size - at - topic_length_bytes - 2:
        return False
    at += parts.body_bytes
    parts.topic_bytes = <signed char>p[at] if topic_length_bytes == 1 else i16(p + at)
    at += topic_length_bytes
    parts.topic = at
    if not 0 <= parts.topic_bytes <= size - at - 2:
        return False
    at += parts.topic_bytes
    parts.properties_bytes = i16(p + at)
    at += 2
    parts.properties = at
    return parts.properties_bytes >= 0 and at + parts.properties_bytes == size


cdef bint body_sound(const uint8_t* p, Parts* parts) noexcept nogil:
    if parts.body_bytes == 0:
        return True
    return (crc32_of(p + parts.body, parts.body_bytes) & 0x7FFFFFFF) == <uint32_t>i32(p + 8)


cdef inline bytes _host(const uint8_t* p, Py_ssize_t size, bytes before):
    """An address; mostly it is that of the record before."""
    if before is not None and PyBytes_GET_SIZE(before) == size \
            and memcmp(PyBytes_AS_STRING(before), p, size) == 0:
        return before
    return PyBytes_FromStringAndSize(<const char*>p, size)


cdef inline str _topic(const uint8_t* p, Py_ssize_t size, str before):
    if before is not None and PyUnicode_IS_ASCII(before) and PyUnicode_GET_LENGTH(before) == size \
            and memcmp(PyUnicode_DATA(before), p, size) == 0:
        return before
    return PyUnicode_DecodeUTF8(<const char*>p, size, "replace")


cdef Record _record(const uint8_t* p, int size, Parts* parts, Record before):
    cdef Record record = Record.__new__(Record)
    cdef const uint8_t* hosts = p + 48
    record.size = size
    record.body_crc = i32(p + 8)
    record.queue_id = i32(p + 12)
    record.flag = i32(p + 16)
    record.queue_offset = i64(p + 20)
    record.physical_offset = i64(p + 28)
    record.sys_flag = i32(p + 36)
    record.born_timestamp = i64(p + 40)
    record.born_ip = _host(hosts, parts.born_bytes, None if before is None else before.born_ip)
    hosts += parts.born_bytes
    record.born_port = i32(hosts)
    record.store_timestamp = i64(hosts + 4)
    hosts += 12
    record.store_ip = _host(hosts, parts.store_bytes, None if before is None else before.store_ip)
    hosts += parts.store_bytes
    record.store_port = i32(hosts)
    record.reconsume_times = i32(hosts + 4)
    record.prepared_offset = i64(hosts + 8)
    record.body = PyBytes_FromStringAndSize(<const char*>(p + parts.body), parts.body_bytes)
    record.topic = _topic(
        p + parts.topic, parts.topic_bytes, None if before is None else before.topic)
    record.properties = PyUnicode_DecodeUTF8(
        <const char*>(p + parts.properties), parts.properties_bytes, "replace")
    return record


def decode_record(data, position=0, *, check_crc=True):
    cdef Py_buffer buffer
    cdef Py_ssize_t at, left
    cdef const uint8_t* p
    cdef int size, magic
    cdef Parts parts
    cdef object record = None
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        at = position
        left = buffer.len - at
        if at >= 0 and left >= RECORD_BYTES_MIN:
            p = <const uint8_t*>buffer.buf + at
            size = i32(p)
            magic = i32(p + 4)
            if (magic == MAGIC_V1 or magic == MAGIC_V2) and RECORD_BYTES_MIN <= size <= left \
                    and measure(p, size, magic, &parts) \
                    and (not check_crc or body_sound(p, &parts)):
                record = _record(p, size, &parts, None)
    finally:
        PyBuffer_Release(&buffer)
    if record is None:
        return _reference.decode_record(data, position, check_crc=check_crc)  # says why not
    return record


def decode_records(bytes data not None):
    cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef const uint8_t* p
    cdef Py_ssize_t at = 0, length = PyBytes_GET_SIZE(data)
    cdef int size, magic
    cdef Parts parts
    cdef Record record = None
    cdef list found = []
    while at < length:
        p = base + at
        if length - at < RECORD_BYTES_MIN:
            return _reference.decode_records(data)  # says what is wrong
        size = i32(p)
        magic = i32(p + 4)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) \
                or not RECORD_BYTES_MIN <= size <= length - at \
                or not measure(p, size, magic, &parts) or not body_sound(p, &parts):
            return _reference.decode_records(data)
        record = _record(p, size, &parts, record)
        found.append(record)
        at += size
    return found


cdef object _tags_code(const uint8_t* p, int size, str properties):
    """Java hash of the last TAGS value in a property string."""
    cdef int at = 0, stop, i
    cdef uint32_t code = 0
    # Not the length: a broken byte becomes one replacement character, and the lengths agree.
    if not PyUnicode_IS_ASCII(properties):
        return _reference.tags_code(properties)  # hash characters, not bytes
    while at < size:
        stop = at
        while stop < size and p[stop] != 2:
            stop += 1
        if stop - at > 5 and memcmp(p + at, b"TAGS\x01", 5) == 0:
            code = 0
            for i in range(at + 5, stop):
                code = 31 * code + p[i]
        at = stop + 1
    return <int32_t>code


cdef inline object _scanned(const uint8_t* p, int size, Py_ssize_t position, Parts* parts):
    cdef str properties = PyUnicode_DecodeUTF8(
        <const char*>(p + parts.properties), parts.properties_bytes, "replace")
    cdef const uint8_t* behind_born = p + 48 + parts.born_bytes
    return _new_tuple(_Scanned, (
        position,
        size,
        PyUnicode_DecodeUTF8(<const char*>(p + parts.topic), parts.topic_bytes, "replace"),
        i32(p + 12),
        i64(p + 20),
        i64(p + 28),
        i32(p + 36),
        i64(behind_born + 4),
        i64(p + parts.body - 12),
        _tags_code(p + parts.properties, parts.properties_bytes, properties),
        properties,
    ))


def scan_records(data, start, stop, *, check_crc=False):
    cdef Py_buffer buffer
    cdef list records = []
    cdef Py_ssize_t at, end
    cdef const uint8_t* p
    cdef int size, magic
    cdef bint crc = check_crc
    cdef Parts parts
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= stop <= buffer.len:
            return _reference.scan_records(data, start, stop)  # which refuses
        at = start
        end = stop
        while end - at >= RECORD_BYTES_MIN:
            p = <const uint8_t*>buffer.buf + at
            size = i32(p)
            magic = i32(p + 4)
            if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN \
                    or size > end - at or not measure(p, size, magic, &parts) \
                    or (crc and not body_sound(p, &parts)):
                break
            records.append(_scanned(p, size, at, &parts))
            at += size
    finally:
        PyBuffer_Release(&buffer)
    # No ordinary record starts here: filler, end, cut or damage. The reference says which.
    rest = _reference.scan_records(data, at, stop, check_crc=check_crc)
    return Scan(records + rest.records, rest.position, rest.ending, rest.reason)


cdef object _tiles(const uint8_t* data, Py_ssize_t start, Py_ssize_t stop, int64_t first_offset,
                   Py_ssize_t every):
    cdef list starts = []
    cdef Py_ssize_t at = start, wanted = start
    cdef int64_t records = 0, timestamp = 0, stored
    cdef const uint8_t* p
    cdef int size, magic
    cdef Parts parts
    cdef bint falls = False
    cdef str ending = "broken"
    while stop - at >= 8:
        p = data + at
        size = i32(p)
        magic = i32(p + 4)
        if size == 0 and magic == 0:
            ending = "end"
            break
        if magic == MAGIC_BLANK and size == stop - at:
            ending = "blank"
            break
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN \
                or size > stop - at or not measure(p, size, magic, &parts) \
                or i64(p + 28) != first_offset + at:
            break
        stored = i64(p + 48 + parts.born_bytes + 4)
        falls = falls or (records > 0 and stored < timestamp)
        timestamp = stored
        if at >= wanted:
            starts.append((at, timestamp))
            wanted = at - (at - start) % every + every
        records += 1
        at += size
    else:
        if at == stop:
            ending = "end"
    return Tiling(starts, at, records, ending, timestamp, bool(falls))


def tile_records(data, start, stop, first_offset, every):
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= stop <= buffer.len or every < 1:
            return _reference.tile_records(data, start, stop, first_offset, every)  # refuses
        return _tiles(<const uint8_t*>buffer.buf, start, stop, first_offset, every)
    finally:
        PyBuffer_Release(&buffer)


cdef bint _is_wanted(const uint8_t* topic, int size, dict topics, wants) except -1:
    cdef bytes name = topic[:size].decode("utf-8", "replace").encode()
    known = topics.get(name)
    if known is None:
        known = topics[name] = wants(name.decode())
    return known


cdef object _selected(const uint8_t* data, Py_ssize_t start, Py_ssize_t stop, int64_t first_offset,
                      int64_t begin_ms, int64_t end_ms, dict topics, wants, int64_t bytes_max):
    cdef list runs = []
    cdef Py_ssize_t at = start, run = -1  # where the run began that reaches up to here
    cdef int64_t timestamp, taken = 0
    cdef const uint8_t* p
    cdef const uint8_t* topic = NULL  # of the record before
    cdef int size, magic, topic_bytes = -1
    cdef bint topic_wanted = True, wanted
    cdef Parts parts
    cdef str ending = "stop"
    while at < stop:
        if taken >= bytes_max:
            ending = "full"
            break
        p = data + at
        if stop - at < RECORD_BYTES_MIN:
            ending = "odd"
            break
        size = i32(p)
        magic = i32(p + 4)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN \
                or size > stop - at or not measure(p, size, magic, &parts) \
                or i64(p + 28) != first_offset + at or not body_sound(p, &parts):
            ending = "odd"
            break
        timestamp = i64(p + 48 + parts.born_bytes + 4)
        wanted = begin_ms <= timestamp < end_ms
        if wanted and topics is not None:
            if topic_bytes != parts.topic_bytes or memcmp(topic, p + parts.topic, topic_bytes):
                topic = p + parts.topic
                topic_bytes = parts.topic_bytes
                topic_wanted = _is_wanted(topic, topic_bytes, topics, wants)
            wanted = topic_wanted
        if wanted:
            taken += size
            if run < 0:
                run = at
        elif run >= 0:
            runs.append((run, at))
            run = -1
        at += size
    if run >= 0:
        runs.append((run, at))
    return Selected(runs, at, ending)


def select_records(data, start, stop, first_offset, begin_ms, end_ms, topics, wants, bytes_max):
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= stop <= buffer.len:
            raise ValueError(f"range {start} to {stop} outside a buffer of {buffer.len} bytes")
        return _selected(<const uint8_t*>buffer.buf, start, stop, first_offset, begin_ms, end_ms,
                         topics, wants, bytes_max)
    finally:
        PyBuffer_Release(&buffer)
