# cython: language_level=3, boundscheck=False, wraparound=False, binding=True, cdivision=True
"""Compiled twin of `firearrow.hot.reference.frames`.

The parser below knows the headers that real clients send: compact JSON, the usual keys, text or
integers as values. Whatever else arrives (white space, floats, surrogates, unknown keys, anything
malformed) is handed to the reference twin, so that odd and hostile input has exactly one meaning.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_SetItem
from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from firearrow.hot.native.commands cimport Command

from firearrow.hot.layout import LANGUAGES
from firearrow.hot.reference import frames as _reference

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)
    object PyUnicode_DecodeLatin1(const char* text, Py_ssize_t size, const char* errors)

cdef int LANGUAGE_COUNT = len(LANGUAGES)
cdef int LANGUAGE_OTHER = 7
cdef list _language_names = [name.encode() for name in LANGUAGES]


cdef inline uint32_t _u32(const uint8_t* p) noexcept:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline int32_t _i32(const uint8_t* p) noexcept:
    return <int32_t>_u32(p)


cdef inline int _i16(const uint8_t* p) noexcept:
    return <int>(<signed char>p[0]) * 256 + p[1]


# Strings seen lately, so that the keys and the short values that every request repeats are one
# object each, with its hash already known. Direct-mapped; a collision just replaces.
DEF CACHE_SLOTS = 1024
DEF CACHED_BYTES_MAX = 24
cdef list _cache = [None] * CACHE_SLOTS


cdef inline object _ascii(const uint8_t* p, Py_ssize_t size):
    cdef object text
    cdef uint32_t slot
    if size == 1:
        return PyUnicode_DecodeLatin1(<const char*>p, 1, NULL)  # CPython keeps these
    if 0 < size <= CACHED_BYTES_MAX:
        slot = (p[0] * 31 + p[size - 1]) * 31 + p[size >> 1] + <uint32_t>size * 131
        slot &= CACHE_SLOTS - 1
        text = _cache[slot]
        if text is not None and PyUnicode_GET_LENGTH(text) == size \
                and memcmp(PyUnicode_DATA(text), p, size) == 0:
            return text
        text = PyUnicode_New(size, 127)
        memcpy(PyUnicode_DATA(text), p, size)
        _cache[slot] = text
        return text
    text = PyUnicode_New(size, 127)
    memcpy(PyUnicode_DATA(text), p, size)
    return text


cdef inline object _text(const uint8_t* p, Py_ssize_t size, bint ascii_only):
    if ascii_only:
        return _ascii(p, size)
    return PyUnicode_DecodeUTF8(<const char*>p, size, "replace")


# 0 plain, 1 quote, 2 backslash, 3 control (never inside a JSON string), 4 beyond ASCII
cdef uint8_t[256] _kinds
cdef int _c
for _c in range(256):
    _kinds[_c] = 3 if _c < 32 else 4 if _c > 127 else 0
_kinds[34] = 1
_kinds[92] = 2

cdef uint8_t* _scratch = NULL
cdef Py_ssize_t _scratch_bytes = 0


cdef inline int _hex(uint8_t c) noexcept:
    if 48 <= c <= 57:
        return c - 48
    if 97 <= c <= 102:
        return c - 87
    if 65 <= c <= 70:
        return c - 55
    return -1


cdef class _Parser:
    """A cursor over one JSON header. Methods return False where the reference must decide."""

    cdef const uint8_t* at
    cdef const uint8_t* stop
    cdef object value

    cdef bint string(self) except -1:
        """The string at the cursor (on its opening quote) into `value`."""
        cdef const uint8_t* p = self.at + 1
        cdef const uint8_t* start = p
        cdef const uint8_t* stop = self.stop
        cdef bint ascii_only = True
        cdef uint8_t kind
        while p < stop:
            kind = _kinds[p[0]]
            if kind:
                if kind == 1:
                    self.value = _text(start, p - start, ascii_only)
                    self.at = p + 1
                    return True
                if kind == 2:
                    return self.escaped(start, p, ascii_only)
                if kind == 3:
                    return False
                ascii_only = False
            p += 1
        return False

    cdef bint escaped(self, const uint8_t* start, const uint8_t* p, bint ascii_only) except -1:
        """The rest of a string whose first backslash is at `p`."""
        global _scratch, _scratch_bytes
        cdef const uint8_t* stop = self.stop
        cdef Py_ssize_t room = stop - start
        cdef uint8_t* out
        cdef uint8_t kind, c
        cdef int a, b, d, e
        if room > _scratch_bytes:  # an escape never grows, so the input's size is enough
            out = <uint8_t*>PyMem_Realloc(_scratch, room)
            if out == NULL:
                raise MemoryError
            _scratch = out
            _scratch_bytes = room
        memcpy(_scratch, start, p - start)
        out = _scratch + (p - start)
        while p < stop:
            c = p[0]
            kind = _kinds[c]
            if kind == 0 or kind == 4:
                ascii_only = ascii_only and kind == 0
                out[0] = c
                out += 1
                p += 1
            elif kind == 1:
                self.value = _text(_scratch, out - _scratch, ascii_only)
                self.at = p + 1
                return True
            elif kind == 3 or stop - p < 2:
                return False
            elif p[1] == 117:  # \uXXXX
                if stop - p < 6:
                    return False
                a = _hex(p[2])
                b = _hex(p[3])
                d = _hex(p[4])
                e = _hex(p[5])
                if a < 0 or b < 0 or d < 0 or e < 0:
                    return False
                a = (a << 12) | (b << 8) | (d << 4) | e
                if a < 0x80:
                    out[0] = <uint8_t>a
                    out += 1
                elif a < 0x800:
                    ascii_only = False
                    out[0] = <uint8_t>(0xC0 | (a >> 6))
                    out[1] = <uint8_t>(0x80 | (a & 0x3F))
                    out += 2
                elif 0xD800 <= a <= 0xDFFF:
                    return False
                else:
                    ascii_only = False
                    out[0] = <uint8_t>(0xE0 | (a >> 12))
                    out[1] = <uint8_t>(0x80 | ((a >> 6) & 0x3F))
                    out[2] = <uint8_t>(0x80 | (a & 0x3F))
                    out += 3
                p += 6
            else:
                c = p[1]
                if c == 34 or c == 92 or c == 47:
                    out[0] = c
                elif c == 110:
                    out[0] = 10
                elif c == 116:
                    out[0] = 9
                elif c == 114:
                    out[0] = 13
                elif c == 98:
                    out[0] = 8
                elif c == 102:
                    out[0] = 12
                else:
                    return False
                out += 1
                p += 2
        return False

    cdef bint number(self, int* number) except -1:
        """A JSON integer of 32 bits at the cursor."""
        cdef const uint8_t* p = self.at
        cdef const uint8_t* digits
        cdef int64_t value = 0
        cdef bint negative = p < self.stop and p[0] == 45
        if negative:
            p += 1
        digits = p
        while p < self.stop and 48 <= p[0] <= 57:
            if p - digits >= 10:
                return False
            value = value * 10 + (p[0] - 48)
            p += 1
        if p == digits or (digits[0] == 48 and p - digits > 1):
            return False
        if negative:
            value = -value
        if not -2147483648 <= value <= 2147483647:
            return False
        self.at = p
        number[0] = <int>value
        return True

    cdef bint integer_text(self) except -1:
        """A JSON integer at the cursor, kept as text."""
        cdef const uint8_t* p = self.at
        cdef const uint8_t* digits
        if p < self.stop and p[0] == 45:
            p += 1
        digits = p
        while p < self.stop and 48 <= p[0] <= 57:
            p += 1
        if p == digits or (digits[0] == 48 and p - digits > 1):
            return False
        self.value = _ascii(self.at, p - self.at)
        self.at = p
        return True

    cdef bint literal(self, const char* text, Py_ssize_t size) noexcept:
        if self.stop - self.at < size or memcmp(self.at, text, size) != 0:
            return False
        self.at += size
        return True

    cdef bint ext_fields(self, Command command) except -1:
        cdef dict ext = {}
        cdef object name
        cdef uint8_t c
        command.ext = ext
        if not self.literal(b"{", 1):
            return False
        if self.literal(b"}", 1):
            return True
        while True:
            if self.at >= self.stop or self.at[0] != 34 or not self.string():
                return False
            name = self.value
            if self.stop - self.at < 2 or self.at[0] != 58:
                return False
            self.at += 1
            c = self.at[0]
            if c == 34:
                if not self.string():
                    return False
            elif c == 116:
                if not self.literal(b"true", 4):
                    return False
                self.value = "true"
            elif c == 102:
                if not self.literal(b"false", 5):
                    return False
                self.value = "false"
            elif not self.integer_text():
                return False
            PyDict_SetItem(ext, name, self.value)
            if self.at >= self.stop:
                return False
            c = self.at[0]
            self.at += 1
            if c == 125:
                return True
            if c != 44:
                return False

    cdef bint language(self, Command command) except -1:
        cdef const uint8_t* start
        cdef Py_ssize_t size
        cdef int code
        cdef bytes name
        if self.at >= self.stop or self.at[0] != 34:
            return False
        self.at += 1
        start = self.at
        while self.at < self.stop and _kinds[self.at[0]] == 0:
            self.at += 1
        if self.at >= self.stop or self.at[0] != 34:
            return False
        size = self.at - start
        self.at += 1
        for code in range(LANGUAGE_COUNT):
            name = <bytes>_language_names[code]
            if PyBytes_GET_SIZE(name) == size \
                    and memcmp(PyBytes_AS_STRING(name), start, size) == 0:
                command.language = code
                return True
        return False

    cdef bint header(self, Command command) except -1:
        """The whole header. The shortest distinguishing test per key: length, then bytes."""
        cdef const uint8_t* key
        cdef Py_ssize_t size
        cdef uint8_t c
        if not self.literal(b"{", 1):
            return False
        while True:
            if self.at >= self.stop or self.at[0] != 34:
                return False
            self.at += 1
            key = self.at
            while self.at < self.stop and _kinds[self.at[0]] == 0:
                self.at += 1
            size = self.at - key
            if not self.literal(b'":', 2):
                return False
            if size == 4 and memcmp(key, b"code", 4) == 0:
                if not self.number(&command.code):
                    return False
            elif size == 9 and memcmp(key, b"extFields", 9) == 0:
                if not self.ext_fields(command):
                    return False
            elif size == 4 and memcmp(key, b"flag", 4) == 0:
                if not self.number(&command.flag):
                    return False
            elif size == 8 and memcmp(key, b"language", 8) == 0:
                if not self.language(command):
                    return False
            elif size == 6 and memcmp(key, b"opaque", 6) == 0:
                if not self.number(&command.opaque):
                    return False
            elif size == 6 and memcmp(key, b"remark", 6) == 0:
                if self.at >= self.stop or self.at[0] != 34 or not self.string():
                    return False
                command.remark = self.value
            elif size == 7 and memcmp(key, b"version", 7) == 0:
                if not self.number(&command.version):
                    return False
            elif size == 23 and memcmp(key, b"serializeTypeCurrentRPC", 23) == 0:
                if self.at >= self.stop or self.at[0] != 34 or not self.string():
                    return False
            else:
                return False
            if self.at >= self.stop:
                return False
            c = self.at[0]
            self.at += 1
            if c == 125:
                return self.at == self.stop
            if c != 44:
                return False


cdef bint _read_json(
        _Parser parser, Command command, const uint8_t* p, Py_ssize_t size) except -1:
    parser.at = p
    parser.stop = p + size
    if not parser.header(command):
        return False
    if command.ext is None:
        command.ext = {}
    return True


cdef bint _read_binary(Command command, const uint8_t* p, Py_ssize_t size) except -1:
    cdef const uint8_t* stop = p + size
    cdef const uint8_t* ext_stop
    cdef int32_t count
    cdef object name
    cdef dict ext = {}
    if size < 21:
        return False
    command.code = _i16(p)
    command.language = <signed char>p[2]
    if not 0 <= command.language < LANGUAGE_COUNT:
        command.language = LANGUAGE_OTHER
    command.version = _i16(p + 3)
    command.opaque = _i32(p + 5)
    command.flag = _i32(p + 9)
    count = _i32(p + 13)
    p += 17
    if not 0 <= count <= stop - p - 4:
        return False
    if count:
        command.remark = PyUnicode_DecodeUTF8(<const char*>p, count, "replace")
    p += count
    count = _i32(p)
    p += 4
    if not 0 <= count <= stop - p:
        return False
    ext_stop = p + count
    while p < ext_stop:
        if ext_stop - p < 2:
            return False
        count = _i16(p)
        p += 2
        if not 0 <= count <= ext_stop - p - 4:
            return False
        name = _utf8(p, count)
        p += count
        count = _i32(p)
        p += 4
        if not 0 <= count <= ext_stop - p:
            return False
        if count and PyUnicode_GET_LENGTH(name):
            PyDict_SetItem(ext, name, _utf8(p, count))
        p += count
    command.ext = ext
    return True


cdef inline object _utf8(const uint8_t* p, Py_ssize_t size):
    cdef Py_ssize_t i
    for i in range(size):
        if p[i] > 127:
            return PyUnicode_DecodeUTF8(<const char*>p, size, "replace")
    return _ascii(p, size)


cdef Command _take_reference(const uint8_t* p, Py_ssize_t size, int serializer):
    """The same header, read by the reference twin (which raises if it is broken)."""
    header = _reference.decode_header(PyBytes_FromStringAndSize(<const char*>p, size), serializer)
    cdef Command command = Command.__new__(Command)
    command.code = header.code
    command.language = header.language
    command.version = header.version
    command.opaque = header.opaque
    command.flag = header.flag
    command.remark = header.remark
    command.ext = header.ext
    return command


def decode_frames(data, frame_bytes_max, header_bytes_max):
    cdef Py_buffer buffer
    cdef list commands = []
    cdef Command command
    cdef _Parser parser = _Parser.__new__(_Parser)
    cdef const uint8_t* base
    cdef const uint8_t* header
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t length
    cdef int64_t size, frame_max = frame_bytes_max, header_max = header_bytes_max
    cdef Py_ssize_t header_bytes
    cdef int serializer
    cdef bint known
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>buffer.buf
        length = buffer.len
        while length - start >= 4:
            size = _i32(base + start)
            if size < 4 or size > frame_max - 4:
                return commands, start, _reference._bad_frame_length(size, frame_bytes_max)
            if length - start < 8:
                break
            serializer = base[start + 4]
            header_bytes = <Py_ssize_t>(_u32(base + start + 4) & 0xFFFFFF)
            if serializer > 1 or header_bytes > size - 4 or header_bytes > header_max:
                return commands, start, _reference._bad_header_word(
                    data, start, size, header_bytes_max)
            if length - start < 4 + size:
                break
            header = base + start + 8
            command = Command.__new__(Command)
            command.remark = None
            if serializer == 0:
                known = _read_json(parser, command, header, header_bytes)
            else:
                known = _read_binary(command, header, header_bytes)
            if not known:
                try:
                    command = _take_reference(header, header_bytes, serializer)
                except _reference.PeerProtocolError as error:
                    return commands, start, str(error)
            command.serializer = serializer
            command.body = PyBytes_FromStringAndSize(
                <const char*>(header + header_bytes), <Py_ssize_t>size - 4 - header_bytes)
            commands.append(command)
            start += 4 + <Py_ssize_t>size
        return commands, start, ""
    finally:
        PyBuffer_Release(&buffer)
