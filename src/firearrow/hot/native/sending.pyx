# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=True
"""Compiled twin of `firearrow.hot.reference.sending`, where the rules are.

Reads the header where it lies and makes no object of it: about a third of what decoding costs.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from firearrow.hot.native.commands import Command, encode_frame
from firearrow.hot.native.endian cimport i32, w32
from firearrow.hot.native.queues cimport QueueTail
from firearrow.hot.native.records cimport write_raw
from firearrow.hot.native.writing cimport LogWriter

from firearrow.hot.reference.sending import Served

cdef extern from "Python.h":
    ctypedef struct PyObject

cdef enum:
    PROPERTIES_MAX = 32767
    PAIRS_MAX = 24
    # Slots of a reply
    MSG_ID = 0
    QUEUE_ID = 1
    QUEUE_OFFSET = 2
    TRANSACTION_ID = 3
    OPAQUE = 4

cdef const char* _HEX = b"0123456789ABCDEF"
cdef tuple _SENTINELS = ("@msg@", "@queue@", "@offset@", "@transaction@", "1987654321")


cdef class TopicGate:
    cdef public str topic
    cdef public list queues
    cdef public int64_t count
    cdef public int64_t size

    def __init__(self, str topic not None, list queues not None):
        self.topic = topic
        self.queues = queues
        self.count = 0
        self.size = 0


cdef struct _Text:
    const uint8_t* p
    int size


cdef struct _Header:
    # What a send request says; letters are those of the V2 header.
    int code
    int flag
    int64_t opaque
    _Text letter[26]


cdef inline const uint8_t* _string(const uint8_t* p, const uint8_t* end, _Text* out) noexcept nogil:
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


cdef inline const uint8_t* _raw_string(
    const uint8_t* p, const uint8_t* end, _Text* out
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


cdef inline const uint8_t* _number(
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


cdef inline bint _is(_Text* text, const char* word, int size) noexcept nogil:
    return text.size == size and memcmp(text.p, word, size) == 0


cdef const uint8_t* _ext_fields(
    const uint8_t* p, const uint8_t* end, _Header* header
) noexcept nogil:
    """``{"a":"...",...}`` from behind its brace; NULL if it is not plain."""
    cdef _Text name, value
    if p < end and p[0] == 0x7D:
        return p + 1
    while p + 1 < end and p[0] == 0x22:
        p = _string(p + 1, end, &name)
        if p == NULL or p + 1 >= end or p[0] != 0x3A or p[1] != 0x22:
            return NULL
        p = _raw_string(p + 2, end, &value)
        if p == NULL or p >= end:
            return NULL
        if name.size == 1 and 0x61 <= name.p[0] <= 0x7A:
            header.letter[name.p[0] - 0x61] = value
        if p[0] == 0x7D:
            return p + 1
        if p[0] != 0x2C:
            return NULL
        p += 1
    return NULL


cdef bint _header(const uint8_t* p, const uint8_t* end, _Header* header) noexcept nogil:
    """Read a header as Java and most others write it; False if it is written otherwise."""
    cdef _Text name, text
    cdef int64_t number = 0
    cdef int i
    header.code = -1
    header.flag = 0
    header.opaque = 0
    for i in range(26):
        header.letter[i].p = NULL
        header.letter[i].size = 0
    if p >= end or p[0] != 0x7B:
        return False
    p += 1
    while p + 1 < end and p[0] == 0x22:
        p = _string(p + 1, end, &name)
        if p == NULL or p + 1 >= end or p[0] != 0x3A:
            return False
        p += 1
        if p[0] == 0x22:
            if _is(&name, b"remark", 6):
                return False
            p = _string(p + 1, end, &text)
        elif p[0] == 0x7B:
            if not _is(&name, b"extFields", 9):
                return False
            p = _ext_fields(p + 1, end, header)
        else:
            p = _number(p, end, &number)
            if p != NULL:
                if not -2147483648 <= number <= 2147483647:
                    return False
                if _is(&name, b"code", 4):
                    header.code = <int>number
                elif _is(&name, b"flag", 4):
                    header.flag = <int>number
                elif _is(&name, b"opaque", 6):
                    header.opaque = number
                elif not _is(&name, b"version", 7):
                    return False
        if p == NULL or p >= end:
            return False
        if p[0] == 0x7D:
            return p + 1 == end
        if p[0] != 0x2C:
            return False
        p += 1
    return False


cdef inline bint _int_letter(_Header* header, char name, int64_t* out) noexcept nogil:
    cdef _Text* text = &header.letter[name - 0x61]
    if text.p == NULL:
        return False
    return _number(text.p, text.p + text.size, out) == text.p + text.size


cdef int _unescape(_Text* text, uint8_t* out) noexcept nogil:
    """The properties with \\u0001 and \\u0002 in their places; -1 if there is any other escape."""
    cdef const uint8_t* p = text.p
    cdef const uint8_t* end = p + text.size
    cdef int size = 0
    while p < end:
        if size >= PROPERTIES_MAX:
            return -1
        if p[0] == 0x5C:
            if end - p < 6 or memcmp(p + 1, b"u000", 4) != 0 or (p[5] != 0x31 and p[5] != 0x32):
                return -1
            out[size] = p[5] - 0x30
            p += 6
        else:
            if p[0] < 0x20 or p[0] >= 0x7F:
                return -1
            out[size] = p[0]
            p += 1
        size += 1
    return size


cdef inline bint _special(const uint8_t* name, int size) noexcept nogil:
    """Names of properties that need a rule: SPECIAL_PROPERTIES."""
    if size == 5:
        return memcmp(name, b"DELAY", 5) == 0
    if size == 6:
        return memcmp(name, b"POP_CK", 6) == 0
    if size == 8:
        return memcmp(name, b"TRAN_MSG", 8) == 0
    if size >= 9 and memcmp(name, b"INNER_", 6) == 0:
        return (size == 9 and memcmp(name, b"INNER_NUM", 9) == 0) or (
            size == 20 and memcmp(name, b"INNER_MULTI_DISPATCH", 20) == 0)
    if size == 18:
        return memcmp(name, b"_SYS_MSG_PRIORITY_", 18) == 0
    if size >= 14 and memcmp(name, b"TIMER_D", 7) == 0:
        return (size == 15 and memcmp(name, b"TIMER_DELAY_SEC", 15) == 0) or (
            size == 14 and memcmp(name, b"TIMER_DELAY_MS", 14) == 0) or (
            size == 16 and memcmp(name, b"TIMER_DELIVER_MS", 16) == 0) or (
            size == 17 and memcmp(name, b"TIMER_DEL_UNIQKEY", 17) == 0)
    return False


cdef class SendPath:
    cdef LogWriter _writer
    cdef dict _gates
    cdef bytes _added
    cdef list _added_names
    cdef list _literals
    cdef list _slots
    cdef bytearray _scratch

    def __init__(
        self, LogWriter writer not None, dict gates not None, dict added not None,
        dict reply not None,
    ):
        self._writer = writer
        self._gates = gates
        self._added = "".join(
            [f"{name}\x01{value}\x02" for name, value in added.items()]).encode()
        self._added_names = [name.encode() for name in added]
        self._scratch = bytearray(PROPERTIES_MAX + 1 + len(self._added))
        self._learn_reply(reply)

    def _learn_reply(self, reply):
        """Cut a reply of the general encoder into what is always the same and what is not."""
        ext = {
            **reply, "msgId": _SENTINELS[0], "queueId": _SENTINELS[1],
            "queueOffset": _SENTINELS[2], "transactionId": _SENTINELS[3],
        }
        text = encode_frame(Command(0, ext, opaque=int(_SENTINELS[4]), flag=1))[8:].decode()
        found = sorted((text.index(word), slot, word) for slot, word in enumerate(_SENTINELS))
        self._literals = []
        self._slots = []
        at = 0
        for start, slot, word in found:
            self._literals.append(text[at:start].encode())
            self._slots.append(slot)
            at = start + len(word)
        self._literals.append(text[at:].encode())

    def serve(self, data, frame_bytes_max, bytes born_host not None, now_ms):
        cdef Py_buffer buffer
        cdef int64_t now = now_ms, most = frame_bytes_max, end = 0, stored
        cdef Py_ssize_t used = 0, count = 0, size
        cdef bytearray replies = bytearray()
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            while buffer.len - used >= 8:
                size = 4 + <Py_ssize_t>i32(<const uint8_t*>buffer.buf + used)
                if size < 8 or size > most or size > buffer.len - used:
                    break
                stored = self._store(
                    <const uint8_t*>buffer.buf + used, size, born_host, now, replies)
                if stored <= 0:
                    break
                end = stored
                used += size
                count += 1
        finally:
            PyBuffer_Release(&buffer)
        return Served(used, count, bytes(replies), end)

    cdef int64_t _store(
        self, const uint8_t* frame, Py_ssize_t size, bytes born_host, int64_t now,
        bytearray replies,
    ) except -1:
        """One frame; 0 if it is not ordinary, else the end of the log behind its message."""
        cdef uint32_t word = <uint32_t>i32(frame + 4)
        cdef Py_ssize_t header_bytes = word & 0xFFFFFF
        cdef const uint8_t* body = frame + 8 + header_bytes
        cdef Py_ssize_t body_bytes = size - 8 - header_bytes
        cdef _Header header
        cdef _Text unique
        cdef int64_t queues_wanted, queue_id, sys_flag, born, flag, reconsume = 0
        cdef int properties_bytes
        cdef TopicGate gate
        cdef QueueTail queue
        cdef PyObject* found
        cdef object key
        cdef LogWriter writer = self._writer
        cdef int64_t offset, written, queue_offset
        cdef char* scratch = PyByteArray_AS_STRING(self._scratch)
        if word >> 24 or body_bytes <= 0 or not _header(frame + 8, body, &header):
            return 0
        if header.code != 310 or header.flag & ~2:
            return 0
        if header.letter[0].p == NULL or header.letter[1].p == NULL or header.letter[2].p == NULL:
            return 0
        if not _int_letter(&header, b"d", &queues_wanted) \
                or not _int_letter(&header, b"e", &queue_id) \
                or not _int_letter(&header, b"f", &sys_flag) \
                or not _int_letter(&header, b"g", &born) \
                or not _int_letter(&header, b"h", &flag):
            return 0
        if header.letter[9].p != NULL and not _int_letter(&header, b"j", &reconsume):
            return 0
        if header.letter[12].p != NULL and not _is(&header.letter[12], b"false", 5):
            return 0
        if sys_flag & 0xC or not -2147483648 <= sys_flag <= 2147483647 \
                or not -2147483648 <= queues_wanted <= 2147483647 \
                or not -2147483648 <= flag <= 2147483647 \
                or not -2147483648 <= reconsume <= 2147483647:
            return 0
        key = PyBytes_FromStringAndSize(<const char*>header.letter[1].p, header.letter[1].size)
        found = PyDict_GetItem(self._gates, key)
        if found == NULL:
            return 0
        gate = <TopicGate?><object>found
        if not 0 <= queue_id < PyList_GET_SIZE(gate.queues):
            return 0
        if gate.queues[queue_id] is None:
            return 0
        queue = <QueueTail?>gate.queues[queue_id]
        properties_bytes = self._properties(&header.letter[8], &unique)
        if properties_bytes <= 0 or body_bytes > writer.body_bytes_max \
                or writer.room <= writer.position:
            return 0
        offset = writer.start + writer.position
        queue_offset = queue.next_offset
        written = write_raw(
            <uint8_t*>writer._view.buf + writer.position, writer.room - writer.position,
            PyBytes_AS_STRING(queue.topic_bytes), PyBytes_GET_SIZE(queue.topic_bytes),
            <const char*>body, body_bytes,
            scratch, properties_bytes,
            queue.queue_id, <int>flag, queue_offset, offset, <int>sys_flag, born,
            PyBytes_AS_STRING(born_host), PyBytes_GET_SIZE(born_host),
            now, PyBytes_AS_STRING(writer.store_host), PyBytes_GET_SIZE(writer.store_host),
            <int>reconsume, 0)
        if written == 0:
            return 0
        writer.position += written
        queue.next_offset = queue_offset + 1
        gate.count += 1
        gate.size += written
        if not header.flag & 2:
            self._answer(
                replies, header.opaque, offset, queue.queue_id, queue_offset, &unique)
        return offset + written

    cdef int _properties(self, _Text* text, _Text* unique) except -2:
        """Put what is stored into the scratch; its size, or 0 if a rule is needed."""
        cdef uint8_t* out = <uint8_t*>PyByteArray_AS_STRING(self._scratch)
        cdef int size, at = 0, stop, middle, pairs = 0, i
        cdef _Text names[PAIRS_MAX]
        cdef bytes added
        if text.p == NULL:
            return 0
        size = _unescape(text, out)
        if size <= 0 or out[size - 1] != 2:
            return 0
        unique.p = NULL
        while at < size:
            stop = at
            middle = -1
            while out[stop] != 2:
                if out[stop] == 1:
                    if middle >= 0:
                        return 0
                    middle = stop
                stop += 1
            if middle <= at or middle + 1 >= stop or pairs == PAIRS_MAX:
                return 0
            names[pairs].p = out + at
            names[pairs].size = middle - at
            if _special(names[pairs].p, names[pairs].size):
                return 0
            for i in range(pairs):
                if names[i].size == names[pairs].size and memcmp(
                    names[i].p, names[pairs].p, names[i].size
                ) == 0:
                    return 0
            if _is(&names[pairs], b"UNIQ_KEY", 8):
                unique.p = out + middle + 1
                unique.size = stop - middle - 1
            elif _is(&names[pairs], b"WAIT", 4):
                if stop - middle - 1 != 4 or memcmp(out + middle + 1, b"true", 4) != 0:
                    return 0
            pairs += 1
            at = stop + 1
        if unique.p == NULL:
            return 0
        for added in self._added_names:
            for i in range(pairs):
                if _is(&names[i], PyBytes_AS_STRING(added), <int>PyBytes_GET_SIZE(added)):
                    return 0
        if size + PyBytes_GET_SIZE(self._added) > PROPERTIES_MAX:
            return 0
        memcpy(out + size, PyBytes_AS_STRING(self._added), PyBytes_GET_SIZE(self._added))
        return size + <int>PyBytes_GET_SIZE(self._added)

    cdef int _answer(
        self, bytearray replies, int64_t opaque, int64_t offset, int queue_id,
        int64_t queue_offset, _Text* unique,
    ) except -1:
        cdef Py_ssize_t start = PyByteArray_GET_SIZE(replies)
        cdef bytes host = self._writer.store_host
        cdef bytes literal
        cdef Py_ssize_t room = 8 + 2 * PyBytes_GET_SIZE(host) + 16 + 64 + unique.size
        cdef int i, slot
        cdef uint8_t* p
        for literal in self._literals:
            room += PyBytes_GET_SIZE(literal)
        PyByteArray_Resize(replies, start + room)
        p = <uint8_t*>PyByteArray_AS_STRING(replies) + start + 8
        for i in range(5):
            literal = <bytes>self._literals[i]
            memcpy(p, PyBytes_AS_STRING(literal), PyBytes_GET_SIZE(literal))
            p += PyBytes_GET_SIZE(literal)
            slot = self._slots[i]
            if slot == MSG_ID:
                p = _put_hex(p, <const uint8_t*>PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host))
                p = _put_offset(p, <uint64_t>offset)
            elif slot == QUEUE_ID:
                p = _put_decimal(p, queue_id)
            elif slot == QUEUE_OFFSET:
                p = _put_decimal(p, queue_offset)
            elif slot == TRANSACTION_ID:
                memcpy(p, unique.p, unique.size)
                p += unique.size
            else:
                p = _put_decimal(p, opaque)
        literal = <bytes>self._literals[5]
        memcpy(p, PyBytes_AS_STRING(literal), PyBytes_GET_SIZE(literal))
        p += PyBytes_GET_SIZE(literal)
        cdef uint8_t* first = <uint8_t*>PyByteArray_AS_STRING(replies) + start
        cdef Py_ssize_t size = p - first
        w32(first, <uint32_t>(size - 4))
        w32(first + 4, <uint32_t>(size - 8))
        PyByteArray_Resize(replies, start + size)
        return 0


cdef inline uint8_t* _put_hex(uint8_t* p, const uint8_t* raw, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        p[0] = _HEX[raw[i] >> 4]
        p[1] = _HEX[raw[i] & 15]
        p += 2
    return p


cdef inline uint8_t* _put_offset(uint8_t* p, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(15, -1, -1):
        p[i] = _HEX[value & 15]
        value >>= 4
    return p + 16


cdef inline uint8_t* _put_decimal(uint8_t* p, int64_t value) noexcept nogil:
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
