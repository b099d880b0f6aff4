from libc.stdint cimport uint8_t, uint32_t


cdef int hash_str(str text) except? -1
cdef uint32_t crc32_of(const uint8_t* data, Py_ssize_t size) noexcept nogil
