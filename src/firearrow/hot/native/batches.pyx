# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=True
"""Compiled twin of `firearrow.hot.reference.batches`, where the rules are."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from firearrow.hot.native.endian cimport w32
from firearrow.hot.reference import batches as _reference

TextColumn = _reference.TextColumn
PairsColumn = _reference.PairsColumn

cdef enum:
    PROPERTIES_MAX = 32767
    TEXTS_MAX = 8
    VIEWS_MAX = 40

cdef struct Span:
    const uint8_t* p
    int64_t size

cdef struct Col:
    const uint8_t* valid
    const int32_t* offsets
    const uint8_t* data
    int64_t first

cdef const char* _HEX = b"0123456789ABCDEF"


cdef inline bint _is_valid(const uint8_t* valid, int64_t row) noexcept nogil:
    return valid == NULL or (valid[row >> 3] >> (row & 7)) & 1


cdef inline Span _value(Col* column, int64_t row) noexcept nogil:
    cdef Span found
    row += column.first
    found.p = NULL
    found.size = 0
    if _is_valid(column.valid, row):
        found.p = column.data + column.offsets[row]
        found.size = column.offsets[row + 1] - column.offsets[row]
    return found


cdef inline bint _is_plain(Span* text) noexcept nogil:
    cdef int64_t i
    for i in range(text.size):
        if text.p[i] <= 2:
            return False
    return True


cdef class _Views:
    """The buffers that are being read, let go of together."""

    cdef Py_buffer views[VIEWS_MAX]
    cdef int count

    def __cinit__(self):
        self.count = 0

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            PyBuffer_Release(&self.views[i])

    cdef const uint8_t* get(self, object buffer, int64_t* size) except? NULL:
        if self.count == VIEWS_MAX:
            raise ValueError("more columns than a message has room for")
        PyObject_GetBuffer(buffer, &self.views[self.count], PyBUF_SIMPLE)
        self.count += 1
        size[0] = self.views[self.count - 1].len
        return <const uint8_t*>self.views[self.count - 1].buf

    cdef int column(self, object given, int64_t rows, Col* out) except -1:
        """Read a column, and see that its buffers have so many rows."""
        cdef int64_t size, data_size
        cdef int64_t last
        valid, offsets, data, first = given
        out.first = first
        out.valid = NULL
        last = out.first + rows
        if valid is not None:
            out.valid = self.get(valid, &size)
            if size * 8 < last:
                raise ValueError("a column is shorter than it says")
        out.offsets = <const int32_t*>self.get(offsets, &size)
        out.data = self.get(data, &data_size)
        if out.first < 0 or (rows and size < 4 * (last + 1)):
            raise ValueError("a column is shorter than it says")
        if rows and out.offsets[last] > data_size:
            raise ValueError("a column has less data than it says")
        return 0


def encode_rows(
    body, texts, pairs, *, start, stop, bytes_max, bytes key_head not None, counter
):
    cdef _Views views = _Views()
    cdef Col content, names, values
    cdef Col text_columns[TEXTS_MAX]
    cdef Span text_names[TEXTS_MAX]
    cdef const uint8_t* pairs_valid = NULL
    cdef const int32_t* pairs_offsets = NULL
    cdef int64_t pairs_first = 0, size, last
    cdef int64_t row = start, end = stop, most = bytes_max, number = counter
    cdef int64_t used = 0, room, one, place, properties_size
    cdef int count = len(texts), i
    cdef bint has_pairs = pairs is not None
    cdef Span value, named
    cdef uint8_t* out = NULL
    cdef uint8_t* grown
    cdef uint8_t properties[PROPERTIES_MAX + 1]
    cdef uint8_t* p
    cdef uint8_t* stop_at = properties + PROPERTIES_MAX
    cdef bytes name
    cdef list kept = []
    if count > TEXTS_MAX or PyBytes_GET_SIZE(key_head) > 256 or number < 0 or row < 0:
        raise ValueError("more than a message has room for")
    if row >= end:
        return b"", row
    views.column(body, end, &content)
    for i in range(count):
        name = texts[i][0]
        kept.append(name)
        text_names[i].p = <const uint8_t*>PyBytes_AS_STRING(name)
        text_names[i].size = PyBytes_GET_SIZE(name)
        views.column(texts[i][1], end, &text_columns[i])
    if has_pairs:
        valid, offsets, first, names_column, values_column = pairs
        pairs_first = first
        last = pairs_first + end
        if valid is not None:
            pairs_valid = views.get(valid, &size)
            if size * 8 < last:
                raise ValueError("a column is shorter than it says")
        pairs_offsets = <const int32_t*>views.get(offsets, &size)
        if size < 4 * (last + 1):
            raise ValueError("a column is shorter than it says")
        views.column(names_column, pairs_offsets[last], &names)
        views.column(values_column, pairs_offsets[last], &values)
    room = 65536 if most < 65536 else most + 65536
    out = <uint8_t*>PyMem_Malloc(room)
    if out == NULL:
        raise MemoryError
    try:
        while row < end and number < 65536:
            value = _value(&content, row)
            if value.size <= 0:
                raise ValueError(row, "it has no body, and a message needs at least one byte")
            p = properties
            memcpy(p, b"UNIQ_KEY\x01", 9)
            p += 9
            memcpy(p, PyBytes_AS_STRING(key_head), PyBytes_GET_SIZE(key_head))
            p += PyBytes_GET_SIZE(key_head)
            p[0] = _HEX[(number >> 12) & 15]
            p[1] = _HEX[(number >> 8) & 15]
            p[2] = _HEX[(number >> 4) & 15]
            p[3] = _HEX[number & 15]
            p[4] = 2
            p += 5
            properties_size = p - properties
            for i in range(count):
                named = _value(&text_columns[i], row)
                if named.size > 0:
                    if not _is_plain(&named):
                        _refuse(row, &text_names[i])
                    p = _add(p, stop_at, &text_names[i], &named, &properties_size)
            if has_pairs and _is_valid(pairs_valid, pairs_first + row):
                for place in range(
                    pairs_offsets[pairs_first + row], pairs_offsets[pairs_first + row + 1]
                ):
                    named = _value(&names, place)
                    if named.size <= 0:
                        raise ValueError(row, "it has a property without a name")
                    p = _add_pair(p, stop_at, row, &named, &values, place, &properties_size)
            if properties_size > PROPERTIES_MAX:
                raise ValueError(
                    row, f"its properties have {properties_size} bytes; "
                    f"the limit is {PROPERTIES_MAX}")
            one = 22 + value.size + properties_size
            if used and used + one > most:
                break
            if used + one > room:
                room = used + one + 65536
                grown = <uint8_t*>PyMem_Malloc(room)
                if grown == NULL:
                    raise MemoryError
                memcpy(grown, out, used)
                PyMem_Free(out)
                out = grown
            p = w32(out + used, <uint32_t>one)
            memset(p, 0, 12)
            p = w32(p + 12, <uint32_t>value.size)
            memcpy(p, value.p, value.size)
            p += value.size
            p[0] = <uint8_t>(properties_size >> 8)
            p[1] = <uint8_t>properties_size
            memcpy(p + 2, properties, properties_size)
            used += one
            row += 1
            number += 1
        return PyBytes_FromStringAndSize(<char*>out, used), row
    finally:
        PyMem_Free(out)


cdef uint8_t* _add(
    uint8_t* p, uint8_t* stop, Span* name, Span* value, int64_t* size
) noexcept nogil:
    """One more property; what does not fit is counted all the same."""
    size[0] += name.size + value.size + 2
    if stop - p < name.size + value.size + 2:
        return stop
    memcpy(p, name.p, name.size)
    p += name.size
    p[0] = 1
    memcpy(p + 1, value.p, value.size)
    p += value.size + 1
    p[0] = 2
    return p + 1


cdef uint8_t* _add_pair(
    uint8_t* p, uint8_t* stop, int64_t row, Span* name, Col* values, int64_t place, int64_t* size
) except NULL:
    cdef Span value = _value(values, place)
    if value.size <= 0:
        return p
    if not _is_plain(name) or not _is_plain(&value):
        _refuse(row, name)
    return _add(p, stop, name, &value, size)


cdef int _refuse(int64_t row, Span* name) except -1:
    shown = PyBytes_FromStringAndSize(<const char*>name.p, name.size).decode("utf-8", "replace")
    raise ValueError(row, f"{shown} has a character 0, 1 or 2, which RocketMQ cannot carry")
