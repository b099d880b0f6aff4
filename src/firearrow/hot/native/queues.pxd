from libc.stdint cimport int32_t, int64_t


cdef class QueueTail:
    cdef public str topic
    cdef public bytes topic_bytes
    cdef public int queue_id
    cdef public bint plain
    cdef public bint grown
    cdef public int32_t keys_hash
    cdef public int64_t next_offset
    cdef public int64_t max_offset
    cdef public int64_t tail_first
    cdef public bytearray tail
    cdef int put_entry(self, int64_t physical, int32_t size, int64_t tags_code) except -1
