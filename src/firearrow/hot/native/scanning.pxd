# JSON headers read where they lie, and replies written in place: what the send and pull paths share.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

cdef extern from *:
    """
    static const char HEX[] = "0123456789ABCDEF";
    """
    const char* HEX


cdef struct Text:
    const uint8_t* p
    int size


cdef inline const uint8_t* plain_string(
    const uint8_t* p, const uint8_t* end, Text* out
) noexcept nogil:
    """A JSON string without escapes, `p` behind its first quote; NULL if it is anything else."""
    cdef const uint8_t* start = p
    while p < end and p[0] != 0x22:
        if p[0] < 0x20 or p[0] >= 0x7F or p[0] == 0x5C:
            return NULL
        p += 1
    if p >= end:
        return NULL
    out.p = start
    out.size = <int>(p - start)
    return p + 1


cdef inline const uint8_t* raw_string(
    const uint8_t* p, const uint8_t* end, Text* out
) noexcept nogil:
    """A JSON string with escapes left in place; NULL if it does not end."""
    cdef const uint8_t* start = p
    while p < end and p[0] != 0x22:
        if p[0] < 0x20 or p[0] >= 0x7F:
            return NULL
        if p[0] == 0x5C:
            p += 1
        p += 1
    if p >= end:
        return NULL
    out.p = start
    out.size = <int>(p - start)
    return p + 1


cdef inline const uint8_t* decimal(
    const uint8_t* p, const uint8_t* end, int64_t* out
) noexcept nogil:
    cdef bint negative = False
    cdef int64_t value = 0
    cdef int digits = 0
    if p < end and p[0] == 0x2D:
        negative = True
        p += 1
    while p < end and 0x30 <= p[0] <= 0x39:
        value = value * 10 + (p[0] - 0x30)
        digits += 1
        p += 1
        if digits > 18:
            return NULL
    if digits == 0:
        return NULL
    out[0] = -value if negative else value
    return p


cdef inline const uint8_t* bare_value(
    const uint8_t* p, const uint8_t* end, Text* out
) noexcept nogil:
    """A whole number or a boolean without quotes, which Node writes, as its text; NULL if not."""
    cdef int64_t value
    cdef const uint8_t* start = p
    if end - p >= 4 and memcmp(p, b"true", 4) == 0:
        p += 4
    elif end - p >= 5 and memcmp(p, b"false", 5) == 0:
        p += 5
    else:
        if p >= end or (p[0] == 0x2D and p + 1 < end and p[1] == 0x30) \
                or (p[0] == 0x30 and p + 1 < end and 0x30 <= p[1] <= 0x39):
            return NULL
        p = decimal(p, end, &value)
        if p == NULL:
            return NULL
    out.p = start
    out.size = <int>(p - start)
    return p


cdef inline bint is_word(Text* text, const char* word, int size) noexcept nogil:
    return text.size == size and memcmp(text.p, word, size) == 0


cdef struct Head:
    # What the header of every request says.
    int code
    int flag
    int64_t opaque


# Reads ``{"a":"...",...}`` from behind its brace; NULL if it is not plain.
ctypedef const uint8_t* (*ReadExt)(const uint8_t* p, const uint8_t* end, void* out) noexcept nogil


cdef inline bint read_head(
    const uint8_t* p, const uint8_t* end, Head* head, ReadExt read_ext, void* out
) noexcept nogil:
    """Read a header as Java and most others write it; False if it is written otherwise."""
    cdef Text name, text
    cdef int64_t value = 0
    cdef bint seen = False
    head.code = -1
    head.flag = 0
    head.opaque = 0
    if p >= end or p[0] != 0x7B:
        return False
    p += 1
    while p + 1 < end and p[0] == 0x22:
        p = plain_string(p + 1, end, &name)
        if p == NULL or p + 1 >= end or p[0] != 0x3A:
            return False
        p += 1
        if p[0] == 0x22:
            p = plain_string(p + 1, end, &text)
        elif p[0] == 0x7B:
            if seen or not is_word(&name, b"extFields", 9):
                return False
            seen = True
            p = read_ext(p + 1, end, out)
        else:
            p = decimal(p, end, &value)
            if p != NULL:
                if not -2147483648 <= value <= 2147483647:
                    return False
                if is_word(&name, b"code", 4):
                    head.code = <int>value
                elif is_word(&name, b"flag", 4):
                    head.flag = <int>value
                elif is_word(&name, b"opaque", 6):
                    head.opaque = value
                elif not is_word(&name, b"version", 7):
                    return False
        if p == NULL or p >= end:
            return False
        if p[0] == 0x7D:
            return p + 1 == end
        if p[0] != 0x2C:
            return False
        p += 1
    return False


cdef inline bint whole_decimal(Text* text, int64_t* out) noexcept nogil:
    """A field that is a plain decimal, nothing before or behind it; False if it is not there."""
    if text.p == NULL:
        return False
    return decimal(text.p, text.p + text.size, out) == text.p + text.size


cdef inline uint8_t* put_hex(uint8_t* p, const uint8_t* raw, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        p[0] = HEX[raw[i] >> 4]
        p[1] = HEX[raw[i] & 15]
        p += 2
    return p


cdef inline uint8_t* put_offset(uint8_t* p, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(15, -1, -1):
        p[i] = HEX[value & 15]
        value >>= 4
    return p + 16


cdef inline uint8_t* put_decimal(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint8_t[24] digits
    cdef int count = 0
    cdef uint64_t rest
    if value < 0:
        p[0] = 0x2D
        p += 1
        rest = <uint64_t>(-value)
    else:
        rest = <uint64_t>value
    while True:
        digits[count] = <uint8_t>(0x30 + rest % 10)
        count += 1
        rest //= 10
        if rest == 0:
            break
    while count:
        count -= 1
        p[0] = digits[count]
        p += 1
    return p
