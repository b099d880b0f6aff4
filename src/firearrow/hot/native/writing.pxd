from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t

from firearrow.hot.native.queues cimport QueueTail


cdef class StoreMessage:
    cdef public str topic
    cdef public int queue_id
    cdef public bytes body
    cdef public bytes properties
    cdef public int flag
    cdef public int sys_flag
    cdef public int64_t born_timestamp
    cdef public bytes born_host
    cdef public bytes store_host
    cdef public int reconsume_times
    cdef public int64_t prepared_offset
    cdef public int64_t physical_offset
    cdef public int64_t queue_offset
    cdef public int64_t store_timestamp
    cdef public int64_t size


cdef class LogWriter:
    cdef Py_buffer _view
    cdef bint _open
    cdef public bytes store_host
    cdef public int64_t body_bytes_max
    cdef public int64_t start
    cdef public int64_t position
    cdef public int64_t room
    cdef int64_t _ready  # position up to which pages can be written without a fault
    cdef void will_write(self, int64_t size) noexcept nogil
    cpdef int64_t append(
        self, StoreMessage message, QueueTail queue, int64_t store_timestamp) except -2
