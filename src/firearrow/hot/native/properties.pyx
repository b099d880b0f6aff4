# cython: language_level=3, boundscheck=False, wraparound=False, binding=True
"""Compiled twin of `firearrow.hot.reference.properties`, where the rules are.

A record whose fields do not fit is handed to the reference twin, which says so.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from firearrow.hot.native.endian cimport i32
from firearrow.hot.native.records cimport Parts, measure

from firearrow.hot.reference import properties as _reference

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)

cdef Py_ssize_t RECORD_BYTES_MIN = 91


def property_values(record, tuple names not None):
    cdef Py_buffer view
    cdef Parts parts
    cdef const uint8_t* p
    cdef Py_ssize_t size
    PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*>view.buf
        size = view.len
        if (
            size >= RECORD_BYTES_MIN
            and size <= 0x7FFFFFFF
            and measure(p, <int>size, i32(p + 4), &parts)
        ):
            return _values(
                <const char*>p + parts.properties, parts.properties_bytes, names
            )
    finally:
        PyBuffer_Release(&view)
    return _reference.property_values(record, names)


cdef list _values(const char* at, Py_ssize_t size, tuple names):
    cdef const char* stop = at + size
    cdef const char* end
    cdef const char* middle
    cdef Py_ssize_t count = len(names), number, name_bytes
    cdef bytes name
    cdef list found = [None] * count
    while at < stop:
        end = <const char*>memchr(at, 2, stop - at)
        if end == NULL:
            end = stop
        middle = <const char*>memchr(at, 1, end - at)
        if middle != NULL and middle + 1 < end:
            name_bytes = middle - at
            for number in range(count):
                name = <bytes>names[number]
                if PyBytes_GET_SIZE(name) == name_bytes and (
                    memcmp(PyBytes_AS_STRING(name), at, name_bytes) == 0
                ):
                    found[number] = PyUnicode_DecodeUTF8(
                        middle + 1, end - middle - 1, "replace"
                    )
        at = end + 1
    return found
