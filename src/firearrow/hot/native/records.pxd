from libc.stdint cimport int64_t, uint8_t


cdef struct Parts:
    # Where the variable parts of a record lie, relative to its start.
    int born_bytes
    int store_bytes
    int body
    int body_bytes
    int topic
    int topic_bytes
    int properties
    int properties_bytes


cdef bint measure(const uint8_t* p, int size, int magic, Parts* parts) noexcept nogil
cdef bint body_sound(const uint8_t* p, Parts* parts) noexcept nogil


cdef int64_t write_raw(
    uint8_t* p,
    int64_t room,
    const char* topic,
    Py_ssize_t topic_bytes,
    const char* body,
    Py_ssize_t body_bytes,
    const char* properties,
    Py_ssize_t properties_bytes,
    int queue_id,
    int flag,
    int64_t queue_offset,
    int64_t physical_offset,
    int sys_flag,
    int64_t born_timestamp,
    const char* born_host,
    Py_ssize_t born_bytes,
    int64_t store_timestamp,
    const char* store_host,
    Py_ssize_t store_bytes,
    int reconsume_times,
    int64_t prepared_offset,
) noexcept nogil


cdef class Record:
    cdef public str topic
    cdef public bytes body
    cdef public str properties
    cdef public int queue_id
    cdef public int flag
    cdef public int64_t queue_offset
    cdef public int64_t physical_offset
    cdef public int sys_flag
    cdef public int64_t born_timestamp
    cdef public bytes born_ip
    cdef public int born_port
    cdef public int64_t store_timestamp
    cdef public bytes store_ip
    cdef public int store_port
    cdef public int reconsume_times
    cdef public int64_t prepared_offset
    cdef public int body_crc
    cdef public int size
