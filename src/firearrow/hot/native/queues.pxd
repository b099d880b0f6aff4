from libc.stdint cimport int32_t, int64_t, uint8_t


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
    cdef public int64_t min_offset
    cdef public bytes window
    cdef public int64_t window_first
    cdef int put_entry(self, int64_t physical, int32_t size, int64_t tags_code) except -1


cdef bint record_sound(
    const uint8_t* base, Py_ssize_t at, Py_ssize_t end, int64_t offset, bint crc
) noexcept nogil
cdef bint record_of(const uint8_t* p, int size, bytes topic, int32_t queue_id, int64_t offset)
