# Big-endian integers in memory, read and written in place.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline uint8_t* w32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value
    return p + 4


cdef inline uint8_t* w64(uint8_t* p, uint64_t value) noexcept nogil:
    return w32(w32(p, <uint32_t>(value >> 32)), <uint32_t>value)


cdef inline uint8_t* wbytes(uint8_t* p, const char* raw, Py_ssize_t size) noexcept nogil:
    memcpy(p, raw, size)
    return p + size


cdef inline int32_t i32(const uint8_t* p) noexcept nogil:
    return <int32_t>((<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3])


cdef inline int64_t i64(const uint8_t* p) noexcept nogil:
    return <int64_t>((<uint64_t><uint32_t>i32(p) << 32) | <uint32_t>i32(p + 4))


cdef inline int i16(const uint8_t* p) noexcept nogil:
    return <int>(<signed char>p[0]) * 256 + p[1]
