cdef class Command:
    cdef public int code
    cdef public int opaque
    cdef public int flag
    cdef public int language
    cdef public int version
    cdef public int serializer
    cdef public dict ext
    cdef public bytes body
    cdef public object remark
