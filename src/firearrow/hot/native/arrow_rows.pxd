# One message on its way into columns: where its parts lie, and what is found in its properties.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy


cdef enum:
    TOPIC, BROKER, QUEUE_ID, OFFSET, MSG_ID, OFFSET_MSG_ID, KEYS, TAGS, BORN_TIMESTAMP
    STORE_TIMESTAMP, BORN_HOST, STORE_HOST, RECONSUME_TIMES, FLAG, SYS_FLAG, PHYSICAL_OFFSET
    PREPARED_OFFSET, PROPERTIES, PROPERTIES_RAW, BODY, BODY_TEXT, RECORD_SIZE


cdef struct Span:
    const uint8_t* at
    int64_t size  # -1: there is none

cdef struct Row:
    const uint8_t* record  # its fixed part
    int born_bytes
    int store_bytes
    int64_t offset
    int32_t flag
    int32_t sys_flag
    Span topic
    Span properties
    Span body
    Span keys
    Span tags
    Span unique_key


cdef inline bint is_ascii(const uint8_t* p, int64_t size) noexcept nogil:
    cdef uint64_t word, all_bits = 0
    cdef int64_t i = 0
    while i + 8 <= size:
        memcpy(&word, p + i, 8)
        all_bits |= word
        i += 8
    while i < size:
        all_bits |= p[i]
        i += 1
    return all_bits & <uint64_t>0x8080808080808080 == 0


cdef inline Span text_of(Row* row, int code) noexcept nogil:
    cdef Span none
    if code == BODY or code == BODY_TEXT:
        return row.body
    if code == PROPERTIES_RAW:
        return row.properties
    if code == TOPIC:
        return row.topic
    if code == KEYS:
        return row.keys
    if code == TAGS:
        return row.tags
    if code == MSG_ID:
        return row.unique_key
    none.at = NULL
    none.size = 0
    return none


cdef inline void look_into(Row* row) noexcept nogil:
    """Find tags, keys and the producer's id; of several with one name the last counts."""
    cdef const uint8_t* at = row.properties.at
    cdef const uint8_t* end = at + row.properties.size
    cdef const uint8_t* stop
    cdef int64_t size
    row.tags.size = row.keys.size = row.unique_key.size = -1
    while at < end:
        stop = <const uint8_t*>memchr(at, 2, end - at)
        if stop is NULL:
            stop = end
        size = stop - at
        if size > 5 and at[4] == 1:
            if memcmp(at, b"TAGS", 4) == 0:
                row.tags.at = at + 5
                row.tags.size = size - 5
            elif memcmp(at, b"KEYS", 4) == 0:
                row.keys.at = at + 5
                row.keys.size = size - 5
        elif size > 9 and at[8] == 1 and memcmp(at, b"UNIQ_KEY", 8) == 0:
            row.unique_key.at = at + 9
            row.unique_key.size = size - 9
        at = stop + 1
