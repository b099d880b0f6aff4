# Pages of mapped memory, had ready many at a time: one by one each costs a fault, some microseconds.
from libc.stdint cimport uint8_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #ifndef MADV_POPULATE_READ
    #define MADV_POPULATE_READ 22
    #define MADV_POPULATE_WRITE 23
    #endif
    #endif
    #define FA_PAGE_BYTES 4096

    /* 0 where the system cannot do it, or would rather not: then the fault itself will tell. */
    static int fa_populate(const uint8_t *p, size_t size, int writing)
    {
    #if defined(__linux__)
        uintptr_t first = (uintptr_t)p & ~(uintptr_t)(FA_PAGE_BYTES - 1);
        uintptr_t last = ((uintptr_t)p + size + FA_PAGE_BYTES - 1)
            & ~(uintptr_t)(FA_PAGE_BYTES - 1);
        return madvise((void *)first, last - first,
                       writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0;
    #else
        (void)p; (void)size; (void)writing;
        return 0;
    #endif
    }
    """
    int fa_populate(const uint8_t* p, size_t size, int writing) nogil
    enum:
        PAGE_BYTES "FA_PAGE_BYTES"


cdef inline bint populate_read(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    return size <= 0 or fa_populate(p, size, 0)


cdef inline bint populate_write(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    return size <= 0 or fa_populate(p, size, 1)
