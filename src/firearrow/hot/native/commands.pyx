# cython: language_level=3, boundscheck=False, wraparound=False, binding=True, cdivision=True
"""Compiled twin of `firearrow.hot.reference.commands`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from firearrow.hot.layout import LANGUAGES
from firearrow.hot.reference import commands as _reference

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef int LANGUAGE_COUNT = len(LANGUAGES)
cdef int LANGUAGE_OTHER = 7
cdef list _language_names = [name.encode() for name in LANGUAGES]


cdef class Command:
    def __init__(
        self,
        int code,
        dict ext=None,
        bytes body not None=b"",
        *,
        int opaque=0,
        int flag=0,
        remark=None,
        int language=3,
        int version=479,
        int serializer=0,
    ):
        self.code = code
        self.ext = {} if ext is None else ext
        self.body = body
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.language = language
        self.version = version
        self.serializer = serializer

    def __repr__(self):
        return _reference.Command.__repr__(self)


cdef uint8_t* _out = NULL
cdef Py_ssize_t _out_bytes = 0


cdef int _reserve(Py_ssize_t needed) except -1:
    global _out, _out_bytes
    cdef uint8_t* grown
    if needed > _out_bytes:
        grown = <uint8_t*>PyMem_Realloc(_out, needed * 2)
        if grown == NULL:
            raise MemoryError
        _out = grown
        _out_bytes = needed * 2
    return 0


cdef inline Py_ssize_t _put(Py_ssize_t at, const char* text, Py_ssize_t size) noexcept:
    memcpy(_out + at, text, size)
    return at + size


cdef inline void _put_u32(Py_ssize_t at, uint32_t value) noexcept:
    _out[at] = <uint8_t>(value >> 24)
    _out[at + 1] = <uint8_t>(value >> 16)
    _out[at + 2] = <uint8_t>(value >> 8)
    _out[at + 3] = <uint8_t>value


cdef inline Py_ssize_t _put_int(Py_ssize_t at, int value) noexcept:
    cdef uint8_t[12] digits
    cdef int count = 0
    cdef uint32_t rest = <uint32_t>value
    if value < 0:
        _out[at] = 45
        at += 1
        rest = <uint32_t>(-<int64_t>value)
    while True:
        digits[count] = <uint8_t>(48 + rest % 10)
        rest //= 10
        count += 1
        if not rest:
            break
    while count:
        count -= 1
        _out[at] = digits[count]
        at += 1
    return at


cdef const char* _HEX = b"0123456789abcdef"


cdef Py_ssize_t _put_string(Py_ssize_t at, object text) except -1:
    """A JSON string, escaped as json.dumps(ensure_ascii=False) does. Reserves its own room."""
    cdef Py_ssize_t size, i
    cdef const char* raw = PyUnicode_AsUTF8AndSize(text, &size)
    cdef uint8_t c
    cdef uint8_t* out
    _reserve(at + 6 * size + 64)
    out = _out + at
    out[0] = 34
    out += 1
    for i in range(size):
        c = <uint8_t>raw[i]
        if c >= 32 and c != 34 and c != 92:
            out[0] = c
            out += 1
            continue
        out[0] = 92
        out += 1
        if c == 34 or c == 92:
            out[0] = c
        elif c == 10:
            out[0] = 110
        elif c == 13:
            out[0] = 114
        elif c == 9:
            out[0] = 116
        elif c == 8:
            out[0] = 98
        elif c == 12:
            out[0] = 102
        else:
            out[0] = 117
            out[1] = 48
            out[2] = 48
            out[3] = <uint8_t>_HEX[c >> 4]
            out[4] = <uint8_t>_HEX[c & 15]
            out += 4
        out += 1
    out[0] = 34
    return out + 1 - _out


cdef Py_ssize_t _write_json(Command command) except -1:
    """The header from byte 8 of `_out` on; returns where it ends."""
    cdef Py_ssize_t at = 8
    cdef bint first = True
    cdef bytes language
    _reserve(256)
    at = _put(at, b'{"code":', 8)
    at = _put_int(at, command.code)
    if command.ext:
        at = _put(at, b',"extFields":{', 14)
        for name, value in command.ext.items():
            if not first:
                _out[at] = 44
                at += 1
            first = False
            at = _put_string(at, name)
            _out[at] = 58
            at = _put_string(at + 1, value)
        _out[at] = 125
        at += 1
    _reserve(at + 256)
    at = _put(at, b',"flag":', 8)
    at = _put_int(at, command.flag)
    at = _put(at, b',"language":"', 13)
    language = <bytes>_language_names[
        command.language if 0 <= command.language < LANGUAGE_COUNT else LANGUAGE_OTHER]
    at = _put(at, PyBytes_AS_STRING(language), PyBytes_GET_SIZE(language))
    at = _put(at, b'","opaque":', 11)
    at = _put_int(at, command.opaque)
    if command.remark is not None:
        at = _put(at, b',"remark":', 10)
        at = _put_string(at, command.remark)
    at = _put(at, b',"version":', 11)
    at = _put_int(at, command.version)
    _out[at] = 125
    return at + 1


cdef object _head(Command command, int64_t body_bytes, bytes body):
    cdef Py_ssize_t stop, header_bytes
    cdef bytes head
    if command.serializer != 0:
        head = _reference.encode_head(command, body_bytes)
        return head if body is None else head + body
    try:
        stop = _write_json(command)
    except (UnicodeError, TypeError):
        # A lone surrogate, or something that is not text: the reference replaces or refuses.
        head = _reference.encode_head(command, body_bytes)
        return head if body is None else head + body
    header_bytes = stop - 8
    if header_bytes > 0xFFFFFF or not 0 <= body_bytes <= 2147483647 - header_bytes - 4:
        return _reference.encode_head(command, body_bytes)  # which says what does not fit
    _put_u32(0, <uint32_t>(4 + header_bytes + body_bytes))
    _put_u32(4, <uint32_t>header_bytes)
    if body is None:
        return PyBytes_FromStringAndSize(<const char*>_out, stop)
    head = PyBytes_FromStringAndSize(NULL, stop + PyBytes_GET_SIZE(body))
    memcpy(PyBytes_AS_STRING(head), _out, stop)
    memcpy(PyBytes_AS_STRING(head) + stop, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    return head


def encode_frame(Command command not None):
    return _head(command, PyBytes_GET_SIZE(command.body), command.body)


def encode_head(Command command not None, body_bytes):
    return _head(command, body_bytes, None)
