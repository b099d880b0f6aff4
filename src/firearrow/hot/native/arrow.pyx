# cython: language_level=3, boundscheck=False, wraparound=False, binding=True
"""Compiled twin of `firearrow.hot.reference.arrow`.

Two passes over what a pull brought: the first finds the parts of every record that is wanted, the
second copies them, one column after the other. Text that is not ASCII, packed bodies and inner
batches are made plain by Python first, and then take the same way.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from firearrow.hot.native.endian cimport i32, i64
from firearrow.hot.native.records cimport Parts, Record, body_sound, measure
from firearrow.hot.native.arrow_rows cimport (
    BODY,
    BODY_TEXT,
    BORN_HOST,
    BORN_TIMESTAMP,
    BROKER,
    FLAG,
    MSG_ID,
    OFFSET,
    OFFSET_MSG_ID,
    PHYSICAL_OFFSET,
    PROPERTIES,
    QUEUE_ID,
    RECONSUME_TIMES,
    RECORD_SIZE,
    STORE_HOST,
    STORE_TIMESTAMP,
    SYS_FLAG,
    Row,
    Span,
    is_ascii,
    look_into,
    text_of,
)

from firearrow.base.errors import RecordError
from firearrow.hot.layout import COLUMN_KINDS
from firearrow.hot.native.records import decode_record
from firearrow.hot.reference.arrow import _host as _host_text
from firearrow.hot.reference.text import decode_properties

cdef int32_t MAGIC_V1 = -626843481
cdef int32_t MAGIC_V2 = -626843477
cdef int RECORD_BYTES_MIN = 91
cdef int PAIRS_MAX = 64  # of one record; more are left to a dict
cdef int64_t COLUMN_BYTES_MAX = 2147483647
cdef const char* DIGITS = b"0123456789ABCDEF"

cdef list NAMES = [
    "topic", "broker", "queueId", "offset", "msgId", "offsetMsgId", "keys", "tags",
    "bornTimestamp", "storeTimestamp", "bornHost", "storeHost", "reconsumeTimes", "flag",
    "sysFlag", "physicalOffset", "preparedTransactionOffset", "properties", "propertiesRaw",
    "body", "bodyText", "recordSize",
]
assert set(NAMES) == set(COLUMN_KINDS)

cdef class Buffer:
    """Bytes that grow; `give` hands them out."""

    cdef bytearray raw
    cdef uint8_t* p
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    def __cinit__(self):
        self.renew()

    cdef int renew(self) except -1:
        self.raw = bytearray()
        self.p = <uint8_t*>PyByteArray_AS_STRING(self.raw)
        self.size = self.room = 0
        return 0

    cdef int need(self, Py_ssize_t more) except -1:
        """Room for so many bytes behind those that are there."""
        cdef Py_ssize_t wanted = self.size + more
        if wanted > self.room:
            wanted = max(wanted, min(2 * self.room, self.room + (1 << 24)))
            PyByteArray_Resize(self.raw, wanted)
            self.p = <uint8_t*>PyByteArray_AS_STRING(self.raw)
            self.room = wanted
        return 0

    cdef bytearray give(self):
        cdef bytearray raw = self.raw
        PyByteArray_Resize(raw, self.size)
        self.renew()
        return raw


cdef class Texts:
    """A column of strings: where each ends, all of them joined, and which are missing."""

    cdef Buffer offsets
    cdef Buffer values
    cdef Buffer validity
    cdef int64_t count
    cdef int64_t nulls

    def __cinit__(self):
        self.offsets = Buffer()
        self.values = Buffer()
        self.validity = Buffer()
        self.begin()

    cdef int begin(self) except -1:
        self.count = self.nulls = 0
        self.offsets.need(4)
        (<int32_t*>self.offsets.p)[0] = 0
        self.offsets.size = 4
        return 0

    cdef int expect(self, Py_ssize_t rows, int64_t size) except -1:
        """Room for so many strings of so many bytes in all."""
        if self.values.size + size > COLUMN_BYTES_MAX:
            raise RecordError(
                f"{self.values.size + size} bytes do not fit one column; take rows more often")
        self.offsets.need(4 * rows)
        self.values.need(size)
        return 0

    cdef inline void put(self, const uint8_t* at, int64_t size) noexcept:
        memcpy(self.values.p + self.values.size, at, size)
        self.close(size)

    cdef inline void close(self, int64_t size) noexcept:
        """A string of so many bytes was written in place."""
        self.values.size += size
        (<int32_t*>(self.offsets.p + self.offsets.size))[0] = <int32_t>self.values.size
        self.offsets.size += 4
        self.count += 1

    cdef int put_null(self) except -1:
        self._grow_validity()
        self.validity.p[self.count >> 3] &= ~(1 << (self.count & 7))
        self.nulls += 1
        self.close(0)
        return 0

    cdef int _grow_validity(self) except -1:
        """Everything is there until somebody says otherwise."""
        cdef Py_ssize_t wanted = (self.count >> 3) + 1
        if wanted > self.validity.size:
            self.validity.need(wanted - self.validity.size)
            memset(self.validity.p + self.validity.size, 255, wanted - self.validity.size)
            self.validity.size = wanted
        return 0

    cdef tuple give(self):
        cdef object validity = None
        cdef int64_t nulls = self.nulls
        cdef Py_ssize_t wanted = (self.count + 7) >> 3
        if nulls:
            self.validity.need(wanted - self.validity.size)
            memset(self.validity.p + self.validity.size, 255, wanted - self.validity.size)
            self.validity.size = wanted
            if self.count & 7:  # what is behind the last row is 0
                self.validity.p[wanted - 1] &= (1 << (self.count & 7)) - 1
            validity = self.validity.give()
        made = (self.offsets.give(), self.values.give(), validity, nulls)
        self.begin()
        return made


cdef class ArrowRows:
    cdef list _texts  # by column: Texts, or for the map the names
    cdef list _others  # by column: Buffer of numbers; for the map offsets
    cdef list _values  # by column: Texts of the map's values
    cdef int _codes[64]
    cdef int _columns
    cdef bint _by_name  # whether properties must be looked into
    cdef object _unwrap
    cdef Row* _found
    cdef Py_ssize_t _room
    cdef Py_ssize_t _count  # of `_found`
    cdef list _kept  # what rows point into
    cdef readonly Py_ssize_t rows
    cdef readonly int64_t size

    def __cinit__(self):
        self._found = NULL
        self._room = self._count = 0

    def __init__(self, columns, unwrap):
        unknown = [name for name in columns if name not in COLUMN_KINDS]
        if unknown:
            raise ValueError(f"no such columns: {unknown}")
        if {"body", "bodyText"} <= set(columns):
            raise ValueError("a body is either bytes or text")
        if len(columns) > 64:
            raise ValueError("more than 64 columns")
        self._columns = len(columns)
        self._texts, self._others, self._values = [], [], []
        self._by_name = False
        for number, name in enumerate(columns):
            kind = COLUMN_KINDS[name]
            self._codes[number] = NAMES.index(name)
            self._texts.append(Texts() if kind in {"text", "bytes", "map"} else None)
            self._others.append(Buffer() if kind not in {"text", "bytes"} else None)
            self._values.append(Texts() if kind == "map" else None)
            self._by_name = self._by_name or name in {"msgId", "keys", "tags"}
        self._unwrap = unwrap
        self._begin()

    def __dealloc__(self):
        free(self._found)

    cdef int _begin(self) except -1:
        cdef int number
        self.rows = 0
        self.size = 0
        for number in range(self._columns):
            if self._codes[number] == PROPERTIES:
                (<Buffer>self._others[number]).need(4)
                (<int32_t*>(<Buffer>self._others[number]).p)[0] = 0
                (<Buffer>self._others[number]).size = 4
        return 0

    def add(
        self, data, broker, from_offset, until_offset, delta=0, tags=None, *, check_crc=True
    ):
        cdef Py_buffer buffer
        cdef Py_ssize_t number
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            self._count = 0
            self._kept = []
            self._find(
                data, <const uint8_t*>buffer.buf, buffer.len, from_offset, until_offset, delta,
                tags, check_crc)
            self._copy(broker.encode())
            for number in range(self._count):
                self.size += self._found[number].body.size + self._found[number].properties.size
            self.rows += self._count
            return self._count
        finally:
            self._kept = None
            PyBuffer_Release(&buffer)

    # --- first pass: which messages, and where their parts are --------------------------------

    cdef int _find(
        self, object data, const uint8_t* start, Py_ssize_t end, int64_t first, int64_t behind,
        int64_t delta, object tags, bint crc,
    ) except -1:
        cdef Py_ssize_t at = 0
        cdef const uint8_t* p
        cdef int size, magic, sys_flag
        cdef Parts parts
        cdef bint inner
        cdef int64_t offset
        cdef Row row
        while at < end:
            p = start + at
            size = i32(p) if end - at >= RECORD_BYTES_MIN else 0
            magic = i32(p + 4) if size else 0
            if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN \
                    or size > end - at or not measure(p, size, magic, &parts) \
                    or (crc and not body_sound(p, &parts)):
                decode_record(data, at, check_crc=crc)  # says what is wrong
                raise RecordError(f"no record at byte {at}")
            at += size
            sys_flag = i32(p + 36)
            inner = sys_flag & 0xC0 == 0xC0
            offset = i64(p + 20) + delta
            if not inner and not first <= offset < behind:
                continue
            row.record = p
            row.born_bytes = parts.born_bytes
            row.store_bytes = parts.store_bytes
            row.topic.at = p + parts.topic
            row.topic.size = parts.topic_bytes
            if not is_ascii(row.topic.at, row.topic.size):
                row.topic = self._plain(row.topic)
            if inner or (sys_flag & 1 and parts.body_bytes):
                for record in self._unwrap(decode_record(data, p - start, check_crc=False)):
                    self._from_record(&row, record, delta)
                    if first <= row.offset < behind:
                        self._keep(&row, tags)
                continue
            row.offset = offset
            row.flag = i32(p + 16)
            row.sys_flag = sys_flag
            row.body.at = p + parts.body
            row.body.size = parts.body_bytes
            row.properties.at = p + parts.properties
            row.properties.size = parts.properties_bytes
            if not is_ascii(row.properties.at, row.properties.size):
                row.properties = self._plain(row.properties)
            self._keep(&row, tags)
        return 0

    cdef int _from_record(self, Row* row, Record record, int64_t delta) except -1:
        cdef bytes properties = record.properties.encode()
        cdef bytes body = record.body
        self._kept.append(properties)
        self._kept.append(body)
        row.offset = record.queue_offset + delta
        row.flag = record.flag
        row.sys_flag = record.sys_flag
        row.properties.at = <const uint8_t*>PyBytes_AS_STRING(properties)
        row.properties.size = PyBytes_GET_SIZE(properties)
        row.body.at = <const uint8_t*>PyBytes_AS_STRING(body)
        row.body.size = PyBytes_GET_SIZE(body)
        return 0

    cdef Span _plain(self, Span text):
        """The same as sound UTF-8."""
        cdef Span made
        cdef bytes raw = text.at[:text.size].decode("utf-8", "replace").encode()
        self._kept.append(raw)
        made.at = <const uint8_t*>PyBytes_AS_STRING(raw)
        made.size = PyBytes_GET_SIZE(raw)
        return made

    cdef int _keep(self, Row* row, object tags) except -1:
        cdef Row* grown
        if self._by_name or tags is not None:
            look_into(row)
            if tags is not None and (
                row.tags.size < 0 or row.tags.at[:row.tags.size].decode() not in tags
            ):
                return 0
        if self._count == self._room:
            grown = <Row*>realloc(self._found, max(256, 2 * self._room) * sizeof(Row))
            if grown is NULL:
                raise MemoryError
            self._found = grown
            self._room = max(256, 2 * self._room)
        self._found[self._count] = row[0]
        self._count += 1
        return 0

    # --- second pass: one column after the other ------------------------------------------------

    cdef int _copy(self, bytes broker) except -1:
        cdef int number, code
        # Whatever can fail for want of room fails before anything is written.
        for number in range(self._columns):
            self._reserve(number, self._codes[number], PyBytes_GET_SIZE(broker))
        for number in range(self._columns):
            code = self._codes[number]
            if code == PROPERTIES:
                self._copy_map(number)
            elif self._texts[number] is not None:
                self._copy_texts(<Texts>self._texts[number], code, broker)
            else:
                self._copy_numbers(<Buffer>self._others[number], code)
        return 0

    cdef int _reserve(self, int number, int code, int64_t broker_bytes) except -1:
        cdef Py_ssize_t i
        cdef int64_t size = 0
        cdef Span text
        cdef Row* row
        if code == PROPERTIES:
            for i in range(self._count):
                size += self._found[i].properties.size
            # A pair has at least four bytes with its separators, the last one three.
            (<Texts>self._texts[number]).expect(size // 4 + self._count, size)
            (<Texts>self._values[number]).expect(size // 4 + self._count, size)
            (<Buffer>self._others[number]).need(4 * self._count)
            return 0
        if self._texts[number] is None:
            (<Buffer>self._others[number]).need(8 * self._count)
            return 0
        for i in range(self._count):
            row = &self._found[i]
            if code == BODY_TEXT and not is_ascii(row.body.at, row.body.size):
                row.body = self._plain(row.body)
            text = text_of(row, code)
            size += max(text.size, 0)
        if code == BROKER:
            size = self._count * broker_bytes
        elif code == BORN_HOST or code == STORE_HOST:
            size = 64 * self._count
        elif code == MSG_ID or code == OFFSET_MSG_ID:
            size += 56 * self._count
        (<Texts>self._texts[number]).expect(self._count, size)
        return 0

    cdef int _copy_numbers(self, Buffer out, int code) except -1:
        cdef Py_ssize_t i
        cdef const uint8_t* p
        cdef Row* row
        cdef int32_t* small = <int32_t*>(out.p + out.size)
        cdef int64_t* large = <int64_t*>(out.p + out.size)
        for i in range(self._count):
            row = &self._found[i]
            p = row.record
            if code == QUEUE_ID:
                small[i] = i32(p + 12)
            elif code == OFFSET:
                large[i] = row.offset
            elif code == BORN_TIMESTAMP:
                large[i] = <int64_t>(<uint64_t>i64(p + 40) * 1000)
            elif code == STORE_TIMESTAMP:
                large[i] = <int64_t>(<uint64_t>i64(p + 52 + row.born_bytes) * 1000)
            elif code == FLAG:
                small[i] = row.flag
            elif code == SYS_FLAG:
                small[i] = row.sys_flag
            elif code == RECORD_SIZE:
                small[i] = i32(p)
            elif code == PHYSICAL_OFFSET:
                large[i] = i64(p + 28)
            else:
                p += 64 + row.born_bytes + row.store_bytes
                if code == RECONSUME_TIMES:
                    small[i] = i32(p)
                else:
                    large[i] = i64(p + 4)
        if code in (QUEUE_ID, FLAG, SYS_FLAG, RECONSUME_TIMES, RECORD_SIZE):
            out.size += 4 * self._count
        else:
            out.size += 8 * self._count
        return 0

    cdef int _copy_texts(self, Texts out, int code, bytes broker) except -1:
        cdef Py_ssize_t i
        cdef Span text
        cdef Row* row
        for i in range(self._count):
            row = &self._found[i]
            if code == BROKER:
                out.put(<const uint8_t*>PyBytes_AS_STRING(broker), PyBytes_GET_SIZE(broker))
            elif code == OFFSET_MSG_ID or (code == MSG_ID and row.unique_key.size < 0):
                put_offset_id(out, row)
            elif code == BORN_HOST:
                put_host(out, row.record + 48, row.born_bytes)
            elif code == STORE_HOST:
                put_host(out, row.record + 60 + row.born_bytes, row.store_bytes)
            else:
                text = text_of(row, code)
                if text.size < 0:
                    out.put_null()
                else:
                    out.put(text.at, text.size)
        return 0

    cdef int _copy_map(self, int number) except -1:
        cdef Texts names = <Texts>self._texts[number]
        cdef Texts values = <Texts>self._values[number]
        cdef Buffer offsets = <Buffer>self._others[number]
        cdef Py_ssize_t i
        for i in range(self._count):
            put_pairs(names, values, self._found[i].properties)
            (<int32_t*>(offsets.p + offsets.size))[0] = <int32_t>names.count
            offsets.size += 4
        return 0

    def take(self):
        cdef list made = []
        cdef int number
        for number in range(self._columns):
            if self._codes[number] == PROPERTIES:
                names = (<Texts>self._texts[number]).give()
                values = (<Texts>self._values[number]).give()
                offsets = (<Buffer>self._others[number]).give()
                made.append((offsets, names[0], names[1], values[0], values[1]))
            elif self._texts[number] is not None:
                made.append((<Texts>self._texts[number]).give())
            else:
                made.append(((<Buffer>self._others[number]).give(),))
        self._begin()
        return made


cdef int put_pairs(Texts names, Texts values, Span text) except -1:
    """The pairs of one message; a name that comes again keeps its place and gets the new value."""
    cdef Span found_names[64]
    cdef Span found_values[64]
    cdef int count = 0, i
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end = at + text.size
    cdef const uint8_t* stop
    cdef const uint8_t* middle
    cdef Span name
    while at < end:
        stop = <const uint8_t*>memchr(at, 2, end - at)
        if stop is NULL:
            stop = end
        middle = <const uint8_t*>memchr(at, 1, stop - at)
        if middle is not NULL and middle > at and middle + 1 < stop:
            name.at = at
            name.size = middle - at
            i = 0
            while i < count and (
                found_names[i].size != name.size
                or memcmp(found_names[i].at, name.at, name.size) != 0
            ):
                i += 1
            if i == count:
                if count == PAIRS_MAX:
                    return put_many_pairs(names, values, text)
                count += 1
                found_names[i] = name
            found_values[i].at = middle + 1
            found_values[i].size = stop - middle - 1
        at = stop + 1
    for i in range(count):
        names.put(found_names[i].at, found_names[i].size)
        values.put(found_values[i].at, found_values[i].size)
    return 0


cdef int put_many_pairs(Texts names, Texts values, Span text) except -1:
    cdef bytes raw
    for name, value in decode_properties(text.at[:text.size].decode()).items():
        raw = name.encode()
        names.put(<const uint8_t*>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        raw = value.encode()
        values.put(<const uint8_t*>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
    return 0


cdef inline uint8_t* put_hex(uint8_t* out, const uint8_t* raw, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        out[0] = DIGITS[raw[i] >> 4]
        out[1] = DIGITS[raw[i] & 15]
        out += 2
    return out


cdef void put_offset_id(Texts out, Row* row) noexcept:
    """Address, port and place in the log lie in the record just as the id shows them."""
    cdef uint8_t* p = out.values.p + out.values.size
    cdef uint8_t place[8]
    cdef uint8_t* start = p
    memcpy(place, row.record + 28, 8)
    place[0] &= 0x7F
    p = put_hex(p, row.record + 60 + row.born_bytes, row.store_bytes + 4)
    p = put_hex(p, place, 8)
    out.close(p - start)


cdef int put_host(Texts out, const uint8_t* host, int ip_bytes) except -1:
    cdef bytes text
    cdef int size
    if ip_bytes == 4:
        size = snprintf(
            <char*>(out.values.p + out.values.size), 64, b"%u.%u.%u.%u:%d",
            <unsigned int>host[0], <unsigned int>host[1], <unsigned int>host[2],
            <unsigned int>host[3], <int>i32(host + 4))
        out.close(size)
        return 0
    text = _host_text(host[:ip_bytes], i32(host + ip_bytes))
    out.put(<const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return 0
