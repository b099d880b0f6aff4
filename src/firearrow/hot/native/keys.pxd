from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class KeyTable:
    cdef Py_buffer _view
    cdef bint _open
    cdef uint8_t* _p
    cdef uint8_t* _entries
    cdef public int64_t slots
    cdef public int64_t entries
    cdef public int64_t limit
    cdef int32_t next_entry(self) noexcept nogil
    cdef void insert_one(self, int32_t hashed, int64_t offset, int64_t timestamp) noexcept nogil
