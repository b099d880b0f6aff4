# cython: language_level=3, binding=True
"""Compiled twin of `firearrow.hot.reference.syncing`."""

from libc.errno cimport EINTR, errno
from posix.unistd cimport fdatasync, read, write


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
