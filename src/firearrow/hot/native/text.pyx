# cython: language_level=3, boundscheck=False, wraparound=False, binding=True
"""Compiled twin of `firearrow.hot.reference.text`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from firearrow.hot.reference import text as _reference

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    int PyUnicode_KIND(object)
    void* PyUnicode_DATA(object)
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    Py_ssize_t PyUnicode_FindChar(
        object text, Py_UCS4 ch, Py_ssize_t start, Py_ssize_t end, int direction) except -2
    object PyUnicode_Substring(object text, Py_ssize_t start, Py_ssize_t end)


cdef extern from "crc32.h" nogil:
    uint32_t fa_crc32(const uint8_t* data, size_t size)


cdef uint32_t crc32_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    return fa_crc32(data, <size_t>size)


cdef int hash_str(str text) except? -1:
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef int kind = PyUnicode_KIND(text)
    cdef uint32_t value = 0
    cdef uint32_t unit
    cdef Py_ssize_t i
    if kind == 1:
        for i in range(length):
            value = 31 * value + (<uint8_t*>data)[i]
    elif kind == 2:
        for i in range(length):
            value = 31 * value + (<uint16_t*>data)[i]
    else:
        for i in range(length):
            unit = (<uint32_t*>data)[i]
            if unit >= 0x10000:  # Java sees two surrogates
                unit -= 0x10000
                value = 31 * value + (0xD800 + (unit >> 10))
                value = 31 * value + (0xDC00 + (unit & 0x3FF))
            else:
                value = 31 * value + unit
    return <int>value


def java_hash(str text not None):
    return hash_str(text)


def crc31(data):
    cdef Py_buffer buffer
    cdef uint32_t crc
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    crc = crc32_of(<const uint8_t*>buffer.buf, buffer.len)
    PyBuffer_Release(&buffer)
    return crc & 0x7FFFFFFF


def encode_properties(properties):
    cdef list parts = []
    for name, value in properties.items():
        if not name or not value or "\x01" in name or "\x02" in name \
                or "\x01" in value or "\x02" in value:
            return _reference.encode_properties(properties)  # which says what is wrong
        parts.append(name)
        parts.append("\x01")
        parts.append(value)
        parts.append("\x02")
    return "".join(parts)


def decode_properties(str text not None):
    cdef dict properties = {}
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(text)
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t stop, middle
    while at < length:
        stop = PyUnicode_FindChar(text, 2, at, length, 1)
        if stop < 0:
            stop = length
        middle = PyUnicode_FindChar(text, 1, at, stop, 1)
        if middle > at and middle + 1 < stop:
            properties[PyUnicode_Substring(text, at, middle)] = PyUnicode_Substring(
                text, middle + 1, stop)
        at = stop + 1
    return properties


cdef const char* _DIGITS = b"0123456789ABCDEF"


cdef inline char* _put_hex(char* out, uint64_t value, int digits) noexcept:
    cdef int i
    for i in range(digits - 1, -1, -1):
        out[i] = _DIGITS[value & 15]
        value >>= 4
    return out + digits


cdef object _id_with_ip(bytes ip, Py_ssize_t tail_digits, char** tail):
    """A new id string with the IP written; `tail` points at the digits to fill."""
    cdef Py_ssize_t ip_bytes = PyBytes_GET_SIZE(ip)
    cdef const unsigned char* raw = <const unsigned char*>PyBytes_AS_STRING(ip)
    cdef object text = PyUnicode_New(2 * ip_bytes + tail_digits, 127)
    cdef char* out = <char*>PyUnicode_DATA(text)
    cdef Py_ssize_t i
    for i in range(ip_bytes):
        out = _put_hex(out, raw[i], 2)
    tail[0] = out
    return text


def offset_message_id(bytes ip not None, port, physical_offset):
    if (PyBytes_GET_SIZE(ip) != 4 and PyBytes_GET_SIZE(ip) != 16) \
            or not 0 <= port < 4294967296 or not 0 <= physical_offset < 9223372036854775808:
        return _reference.offset_message_id(ip, port, physical_offset)  # which refuses
    cdef char* tail = NULL
    text = _id_with_ip(ip, 24, &tail)
    tail = _put_hex(tail, <uint64_t>port, 8)
    _put_hex(tail, <uint64_t>physical_offset, 16)
    return text


def parse_offset_message_id(text):
    return _reference.parse_offset_message_id(text)


def encode_unique_key(bytes ip not None, pid, loader, since_month_ms, counter):
    if PyBytes_GET_SIZE(ip) != 4 and PyBytes_GET_SIZE(ip) != 16:
        return _reference.encode_unique_key(ip, pid, loader, since_month_ms, counter)
    cdef char* tail = NULL
    text = _id_with_ip(ip, 24, &tail)
    tail = _put_hex(tail, pid & 0xFFFF, 4)
    tail = _put_hex(tail, loader & 0xFFFFFFFF, 8)
    tail = _put_hex(tail, since_month_ms & 0xFFFFFFFF, 8)
    _put_hex(tail, counter & 0xFFFF, 4)
    return text


def parse_unique_key(text):
    return _reference.parse_unique_key(text)
