# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=True
"""Compiled twin of `firearrow.hot.reference.queues`, where the rules are."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from firearrow.hot.native.endian cimport i32, i64, w32, w64
from firearrow.hot.native.keys cimport KeyTable
from firearrow.hot.native.records cimport Parts, body_sound, measure
from firearrow.hot.native.text cimport hash_str

from firearrow.hot.layout import Derived, Gathered

cdef extern from "Python.h":
    ctypedef struct PyObject

cdef enum:
    ENTRY_BYTES = 20
    RECORD_BYTES_MIN = 91
    KEYS_MAX = 64  # of one record; one with more is left to the general rules

cdef int32_t MAGIC_V1 = -626843481
cdef int32_t MAGIC_V2 = -626843477
cdef int32_t FILLER_SIZE = 0x7FFFFFFF


cdef class QueueTail:
    def __init__(self, str topic not None, queue_id, *, plain=True):
        self.topic = topic
        self.topic_bytes = topic.encode("utf-8", "replace")
        self.queue_id = queue_id
        self.plain = plain
        self.keys_hash = hash_str(topic + "#")
        self.grown = False
        self.next_offset = self.max_offset = self.tail_first = 0
        self.tail = bytearray()
        self.min_offset = self.window_first = 0
        self.window = b""

    def add_entry(self, physical_offset, size, tags_code):
        self.put_entry(physical_offset, size, tags_code)

    cdef int put_entry(self, int64_t physical, int32_t size, int64_t tags_code) except -1:
        cdef Py_ssize_t at = PyByteArray_GET_SIZE(self.tail)
        PyByteArray_Resize(self.tail, at + ENTRY_BYTES)
        cdef uint8_t* p = <uint8_t*>PyByteArray_AS_STRING(self.tail) + at
        p = w64(p, <uint64_t>physical)
        p = w32(p, <uint32_t>size)
        w64(p, <uint64_t>tags_code)
        self.max_offset += 1
        return 0


def queue_key(bytes topic not None, queue_id):
    return topic + queue_id.to_bytes(4, "big", signed=True)


cdef struct _Found:
    # What the index and the queue want of a property string.
    int32_t tags_code
    int key_count
    const uint8_t* key[KEYS_MAX]
    int key_bytes[KEYS_MAX]


cdef inline bint _is_ascii(const uint8_t* p, int size) noexcept nogil:
    cdef int i
    cdef uint8_t all_bits = 0
    for i in range(size):
        all_bits |= p[i]
    return all_bits < 0x80


cdef bint _ordinary_properties(const uint8_t* p, int size, _Found* found) noexcept nogil:
    """False if this record needs the general rules."""
    cdef const uint8_t* unique = NULL
    cdef const uint8_t* own = NULL
    cdef int unique_bytes = 0, own_bytes = 0
    cdef int at = 0, stop, middle, name_bytes, value_bytes, i
    cdef const uint8_t* name
    cdef const uint8_t* value
    cdef uint32_t code = 0
    while at <= size:
        stop = at
        middle = -1
        while stop < size and p[stop] != 2:
            if p[stop] == 1 and middle < 0:
                middle = stop
            stop += 1
        name = p + at
        name_bytes = (stop if middle < 0 else middle) - at
        if name_bytes == 20 and memcmp(name, b"INNER_MULTI_DISPATCH", 20) == 0:
            return False
        value_bytes = 0 if middle < 0 else stop - middle - 1
        if value_bytes > 0:
            value = p + middle + 1
            if name_bytes == 4 and memcmp(name, b"TAGS", 4) == 0:
                if not _is_ascii(value, value_bytes):
                    return False
                code = 0
                for i in range(value_bytes):
                    code = 31 * code + value[i]
            elif name_bytes == 4 and memcmp(name, b"KEYS", 4) == 0:
                if not _is_ascii(value, value_bytes):
                    return False
                own, own_bytes = value, value_bytes
            elif name_bytes == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
                if not _is_ascii(value, value_bytes):
                    return False
                unique, unique_bytes = value, value_bytes
        at = stop + 1
    found.tags_code = <int32_t>code
    found.key_count = 0
    if unique != NULL:
        found.key[0] = unique
        found.key_bytes[0] = unique_bytes
        found.key_count = 1
    at = 0
    while at < own_bytes:
        stop = at
        while stop < own_bytes and own[stop] != 0x20:
            stop += 1
        if stop > at:
            if found.key_count == KEYS_MAX:
                return False
            found.key[found.key_count] = own + at
            found.key_bytes[found.key_count] = stop - at
            found.key_count += 1
        at = stop + 1
    return True


cdef inline int32_t _key_hash(int32_t topic_hash, const uint8_t* key, int size) noexcept nogil:
    cdef uint32_t value = <uint32_t>topic_hash
    cdef int i
    for i in range(size):
        value = 31 * value + key[i]
    cdef int64_t signed = <int32_t>value
    if signed < 0:
        signed = -signed
    return <int32_t>(signed & 0x7FFFFFFF)


cdef inline QueueTail _queue_of(dict queues, const uint8_t* p, Parts* parts):
    """The queue of a record, or None."""
    cdef int topic_bytes = parts.topic_bytes
    cdef object key
    cdef PyObject* found
    if not _is_ascii(p + parts.topic, topic_bytes):
        return None
    key = PyBytes_FromStringAndSize(NULL, topic_bytes + 4)
    memcpy(PyBytes_AS_STRING(key), p + parts.topic, topic_bytes)
    memcpy(PyBytes_AS_STRING(key) + topic_bytes, p + 12, 4)
    found = PyDict_GetItem(queues, key)
    return None if found == NULL else <QueueTail?><object>found


cdef bint _derive(
    const uint8_t* p, int size, int64_t offset, dict queues, KeyTable table, list grown
) except -1:
    """One record; False if it is not ordinary, and nothing has changed."""
    cdef Parts parts
    cdef _Found found
    cdef QueueTail queue
    cdef int i
    if not measure(p, size, i32(p + 4), &parts):
        return False
    queue = _queue_of(queues, p, &parts)
    if queue is None or not queue.plain or i64(p + 28) != offset or i32(p + 36) & 0x84 \
            or i64(p + 20) != queue.max_offset:
        return False
    if not _ordinary_properties(p + parts.properties, parts.properties_bytes, &found):
        return False
    if table is not None and offset >= i64(table._p + 24):
        if found.key_count > max(0, table.limit - table.next_entry()):
            return False
        for i in range(found.key_count):
            table.insert_one(
                _key_hash(queue.keys_hash, found.key[i], found.key_bytes[i]),
                offset, i64(p + 52 + parts.born_bytes))
    queue.put_entry(offset, size, found.tags_code)
    if not queue.grown:
        queue.grown = True
        grown.append(queue)
    return True


def derive_records(
    data, start, stop, first_offset, dict queues not None, KeyTable table, list grown not None
):
    cdef Py_buffer buffer
    cdef Py_ssize_t at = start, end = stop
    cdef int64_t base = first_offset, last_timestamp = 0
    cdef Py_ssize_t records = 0
    cdef const uint8_t* p
    cdef int size, magic
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= buffer.len:
            raise ValueError(f"range {start} to {stop} outside a buffer of {buffer.len} bytes")
        while end - at >= RECORD_BYTES_MIN:
            p = <const uint8_t*>buffer.buf + at
            size = i32(p)
            magic = i32(p + 4)
            if (magic != MAGIC_V1 and magic != MAGIC_V2) \
                    or size < RECORD_BYTES_MIN or size > end - at:
                break
            if not _derive(p, size, base + at, queues, table, grown):
                break
            records += 1
            last_timestamp = i64(p + 52 + (16 if i32(p + 36) & 0x10 else 4))
            at += size
    finally:
        PyBuffer_Release(&buffer)
    return Derived(at, records, last_timestamp)


def key_hash(str topic not None, str key not None):
    cdef int64_t value = hash_str(f"{topic}#{key}")
    return (-value if value < 0 else value) & 0x7FFFFFFF


cdef Py_ssize_t _sound(
    const uint8_t* base, Py_ssize_t at, Py_ssize_t end, int64_t offset, bint crc, bint torn
) noexcept nogil:
    """Where soundness ends between two positions; `offset` is that of `base`."""
    cdef const uint8_t* p
    cdef int size, magic
    cdef Parts parts
    while end - at >= RECORD_BYTES_MIN:
        p = base + at
        size = i32(p)
        magic = i32(p + 4)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN \
                or size > end - at or i64(p + 28) != offset + at:
            break
        if crc:
            if not (measure(p, size, magic, &parts) and body_sound(p, &parts)):
                break
            if torn and (memchr(p + parts.topic, 0, parts.topic_bytes) != NULL
                         or memchr(p + parts.properties, 0, parts.properties_bytes) != NULL):
                break
        at += size
    return at


cdef bint record_sound(
    const uint8_t* base, Py_ssize_t at, Py_ssize_t end, int64_t offset, bint crc
) noexcept nogil:
    """Whether one sound record lies between two positions."""
    return _sound(base, at, end, offset, crc, False) == end


cdef bint record_of(const uint8_t* p, int size, bytes topic, int32_t queue_id, int64_t offset):
    """Whether a sound record is of this topic, queue and queue offset."""
    cdef Parts parts
    return measure(p, size, i32(p + 4), &parts) and i32(p + 12) == queue_id \
        and i64(p + 20) == offset and parts.topic_bytes == PyBytes_GET_SIZE(topic) \
        and memcmp(p + parts.topic, PyBytes_AS_STRING(topic), parts.topic_bytes) == 0


def gather_entries(
    entries, most, bytes_max, cold_most, cold_bytes_max, cold_before, codes, dict files not None,
    file_bytes, verified_from, bytes topic not None, queue_id, first_offset,
):
    cdef Py_buffer buffer, memory
    cdef const uint8_t* p
    cdef Py_ssize_t at
    cdef int64_t hot_most = most, hot_bytes = bytes_max
    cdef int64_t cool_most = cold_most, cool_bytes = cold_bytes_max
    cdef int64_t cold_edge = cold_before, per_file = file_bytes, proven = verified_from
    cdef int64_t physical = -1, total = 0, start, place
    cdef int64_t open_start = -1, first = 0, last = 0, mapped_start = -1
    cdef int32_t size
    cdef int64_t records = 0, examined = 0
    cdef bint whole = True, cold, mapped = False
    cdef list slices = []
    cdef object data = None, open_data = None
    cdef int32_t queue = queue_id
    cdef int64_t first_number = first_offset
    PyObject_GetBuffer(entries, &buffer, PyBUF_SIMPLE)
    try:
        for at in range(0, buffer.len - ENTRY_BYTES + 1, ENTRY_BYTES):
            p = <const uint8_t*>buffer.buf + at
            physical = i64(p)
            size = i32(p + 8)
            cold = physical < cold_edge
            if records and (records >= (cool_most if cold else hot_most)
                            or total + size > (cool_bytes if cold else hot_bytes)):
                break
            if size == FILLER_SIZE or (codes is not None and i32(p + 16) not in codes):
                examined += 1
                continue
            start = physical - physical % per_file if physical >= 0 else -1
            if not mapped or start != mapped_start:
                if mapped:
                    PyBuffer_Release(&memory)
                    mapped = False
                data = files.get(start)
                if data is None:
                    whole = False
                    break
                PyObject_GetBuffer(data, &memory, PyBUF_SIMPLE)
                mapped, mapped_start = True, start
            place = physical - start
            if not 0 < size <= per_file - place or place + size > memory.len or _sound(
                <const uint8_t*>memory.buf, place, place + size, start, physical < proven, False
            ) != place + size:
                whole = False
                break
            if physical < proven and not record_of(
                <const uint8_t*>memory.buf + place, size, topic, queue,
                first_number + at // ENTRY_BYTES
            ):
                whole = False
                break
            examined += 1
            records += 1
            total += size
            if start == open_start and last == place:
                last = place + size
                continue
            if open_start >= 0:
                slices.append(open_data[first:last])
            open_data, open_start, first, last = data, start, place, place + size
    finally:
        if mapped:
            PyBuffer_Release(&memory)
        PyBuffer_Release(&buffer)
    if open_start >= 0:
        slices.append(open_data[first:last])
    return Gathered(examined, records, total, slices, physical, whole)


def check_run(data, start, stop, first_offset, *, check_crc, check_torn=False):
    cdef Py_buffer buffer
    cdef Py_ssize_t at = start, end = stop
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= buffer.len:
            raise ValueError(f"range {start} to {stop} outside a buffer of {buffer.len} bytes")
        return _sound(<const uint8_t*>buffer.buf, at, end, first_offset, check_crc, check_torn)
    finally:
        PyBuffer_Release(&buffer)
