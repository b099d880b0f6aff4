# cython: language_level=3, binding=True
"""Compiled twin of `firearrow.hot.reference.syncing`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, errno
from libc.stdint cimport uint8_t
from posix.unistd cimport fdatasync, read, write

from firearrow.hot.native.paging cimport PAGE_BYTES, populate_read


cdef int _sync(int descriptor) noexcept nogil:
    while fdatasync(descriptor) != 0:
        if errno != EINTR:
            return errno
    return 0


def serve_syncs(requests, replies):
    cdef int source = requests, sink = replies, descriptor = 0, error
    cdef Py_ssize_t got
    with nogil:
        while True:
            got = read(source, &descriptor, sizeof(int))
            if got < 0 and errno == EINTR:
                continue
            if got != sizeof(int) or descriptor < 0:
                break
            error = _sync(descriptor)
            while write(sink, &error, sizeof(int)) < 0 and errno == EINTR:
                pass


def bring_in(memory, start, stop):
    cdef Py_buffer buffer
    cdef Py_ssize_t at = start, end = stop
    cdef uint8_t seen = 0
    PyObject_GetBuffer(memory, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= buffer.len:
            raise ValueError(f"range {start} to {stop} outside a buffer of {buffer.len} bytes")
        with nogil:
            if not populate_read(<uint8_t*>buffer.buf + at, end - at):
                while at < end:
                    seen |= (<uint8_t*>buffer.buf)[at]
                    at += PAGE_BYTES
    finally:
        PyBuffer_Release(&buffer)
