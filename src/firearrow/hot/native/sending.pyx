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
from libc.string cimport memchr, memcmp, memcpy, memset

from firearrow.hot.native.commands import Command, encode_frame
from firearrow.hot.native.endian cimport i16, i32, w32
from firearrow.hot.native.queues cimport QueueTail
from firearrow.hot.native.records cimport write_raw
from firearrow.hot.native.scanning cimport (
    Head, Text, bare_value, is_word, plain_string, put_decimal, put_hex, put_offset, raw_string,
    read_head, whole_decimal,
)
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

cdef tuple _SENTINELS = ("@msg@", "@queue@", "@offset@", "@transaction@", "1987654321")


cdef class TopicGate:
    cdef public str topic
    cdef public list queues
    cdef public int64_t count
    cdef public int64_t times
    cdef public int64_t size

    def __init__(self, str topic not None, list queues not None):
        self.topic = topic
        self.queues = queues
        self.count = self.times = self.size = 0


cdef struct _Fields:
    # What a send request says; letters are those of the V2 header, long names those of the first.
    Text letter[26]
    Text long_name[26]


cdef inline char _letter_of(Text* name) noexcept nogil:
    """The letter that a long name has in the V2 header; 0 for one that is not looked at."""
    if name.size == 5:
        if is_word(name, b"topic", 5):
            return b"b"
        return b"m" if is_word(name, b"batch", 5) else 0
    if name.size == 4:
        return b"h" if is_word(name, b"flag", 4) else 0
    if name.size == 7:
        if is_word(name, b"queueId", 7):
            return b"e"
        return b"f" if is_word(name, b"sysFlag", 7) else 0
    if name.size == 10:
        return b"i" if is_word(name, b"properties", 10) else 0
    if name.size == 12:
        return b"c" if is_word(name, b"defaultTopic", 12) else 0
    if name.size == 13:
        if is_word(name, b"bornTimestamp", 13):
            return b"g"
        return b"a" if is_word(name, b"producerGroup", 13) else 0
    if name.size == 14:
        return b"j" if is_word(name, b"reconsumeTimes", 14) else 0
    if name.size == 21:
        return b"d" if is_word(name, b"defaultTopicQueueNums", 21) else 0
    return 0


cdef struct _Common:
    # What all messages of a request have in common.
    int sys_flag
    int reconsume
    int64_t born
    int64_t now
    const char* born_host
    Py_ssize_t born_bytes


cdef const uint8_t* _ext_fields(
    const uint8_t* p, const uint8_t* end, void* out
) noexcept nogil:
    """``{"a":"...",...}`` from behind its brace; NULL if it is not plain."""
    cdef _Fields* header = <_Fields*>out
    cdef Text name, value
    cdef char letter
    if p < end and p[0] == 0x7D:
        return p + 1
    while p + 1 < end and p[0] == 0x22:
        p = plain_string(p + 1, end, &name)
        if p == NULL or p + 1 >= end or p[0] != 0x3A:
            return NULL
        p = raw_string(p + 2, end, &value) if p[1] == 0x22 else bare_value(p + 1, end, &value)
        if p == NULL or p >= end:
            return NULL
        if name.size == 1:
            if 0x61 <= name.p[0] <= 0x7A:
                header.letter[name.p[0] - 0x61] = value
        else:
            letter = _letter_of(&name)
            if letter:
                header.long_name[letter - 0x61] = value
        if p[0] == 0x7D:
            return p + 1
        if p[0] != 0x2C:
            return NULL
        p += 1
    return NULL


cdef inline bint _int_letter(_Fields* header, char name, int64_t* out) noexcept nogil:
    return whole_decimal(&header.letter[name - 0x61], out)


cdef int _unescape(Text* text, uint8_t* out) noexcept nogil:
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
    if size == 11:
        return memcmp(name, b"FA_PRODUCER", 11) == 0
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
    cdef tuple _reply  # literals and slots
    cdef tuple _reply_without_id
    cdef bytearray _scratch
    cdef Py_ssize_t _stored  # messages, since the read began

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
        self._reply = self._learn_reply(
            reply, (MSG_ID, QUEUE_ID, QUEUE_OFFSET, TRANSACTION_ID, OPAQUE))
        self._reply_without_id = self._learn_reply(reply, (MSG_ID, QUEUE_ID, QUEUE_OFFSET, OPAQUE))

    @staticmethod
    def _learn_reply(reply, slots):
        """Cut a reply of the general encoder into what is always the same and what is not."""
        names = ("msgId", "queueId", "queueOffset", "transactionId")
        ext = {**reply, **{names[slot]: _SENTINELS[slot] for slot in slots if slot != OPAQUE}}
        text = encode_frame(Command(0, ext, opaque=int(_SENTINELS[OPAQUE]), flag=1))[8:].decode()
        literals = []
        found = []
        at = 0
        for start, slot in sorted((text.index(_SENTINELS[slot]), slot) for slot in slots):
            literals.append(text[at:start].encode())
            found.append(slot)
            at = start + len(_SENTINELS[slot])
        literals.append(text[at:].encode())
        return literals, found

    def serve(self, data, frame_bytes_max, bytes born_host not None, now_ms):
        cdef Py_buffer buffer
        cdef int64_t now = now_ms, most = frame_bytes_max, end = 0, stored
        cdef Py_ssize_t used = 0, size
        cdef bytearray replies = bytearray()
        self._stored = 0
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            self._writer.will_write(buffer.len)
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
        finally:
            PyBuffer_Release(&buffer)
        return Served(used, self._stored, bytes(replies), end)

    cdef int64_t _store(
        self, const uint8_t* frame, Py_ssize_t size, bytes born_host, int64_t now,
        bytearray replies,
    ) except -1:
        """One frame; 0 if it is not ordinary, else the end of the log behind its messages."""
        cdef uint32_t word = <uint32_t>i32(frame + 4)
        cdef Py_ssize_t header_bytes = word & 0xFFFFFF
        cdef const uint8_t* body = frame + 8 + header_bytes
        cdef Py_ssize_t body_bytes = size - 8 - header_bytes
        cdef Head head
        cdef _Fields header
        cdef Text unique
        cdef int64_t queues_wanted, queue_id, sys_flag, born, flag, reconsume = 0
        cdef int properties_bytes
        cdef TopicGate gate
        cdef QueueTail queue
        cdef PyObject* found
        cdef object key
        cdef LogWriter writer = self._writer
        cdef int64_t offset, written, queue_offset
        cdef bint batch
        cdef _Common common
        memset(&header, 0, sizeof(_Fields))
        if word >> 24 or body_bytes <= 0 \
                or not read_head(frame + 8, body, &head, _ext_fields, &header):
            return 0
        batch = head.code == 320
        if (head.code != 310 and head.code != 10 and not batch) or head.flag & ~2:
            return 0
        if head.code == 10:
            if header.letter[1].p != NULL:
                return 0
            memcpy(&header.letter[0], &header.long_name[0], sizeof(header.letter))
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
        if batch:
            if not is_word(&header.letter[12], b"true", 4):
                return 0
        elif header.letter[12].p != NULL and not is_word(&header.letter[12], b"false", 5):
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
        if properties_bytes < 0 or (unique.p == NULL and not batch) or body_bytes > writer.body_bytes_max \
                or writer.room <= writer.position:
            return 0
        common.sys_flag, common.reconsume = <int>sys_flag, <int>reconsume
        common.born, common.now = born, now
        common.born_host = PyBytes_AS_STRING(born_host)
        common.born_bytes = PyBytes_GET_SIZE(born_host)
        offset = writer.start + writer.position
        queue_offset = queue.next_offset
        if batch:
            written = self._write_batch(queue, &common, body, body_bytes, properties_bytes)
        else:
            written = self._write(
                queue, &common, body, body_bytes, self._add(properties_bytes), <int>flag)
        if written == 0:
            return 0
        self._stored += queue.next_offset - queue_offset
        gate.count += queue.next_offset - queue_offset
        gate.times += 1
        gate.size += written
        if not head.flag & 2:
            self._answer(
                replies, head.opaque, offset, queue.next_offset - queue_offset, queue.queue_id,
                queue_offset, &unique)
        return offset + written

    cdef int64_t _write(
        self, QueueTail queue, _Common* common, const uint8_t* body, Py_ssize_t body_bytes,
        Py_ssize_t properties_bytes, int flag,
    ):
        """Append one message, its properties from the scratch; its size, 0 if there is no room."""
        cdef LogWriter writer = self._writer
        cdef int64_t written = write_raw(
            <uint8_t*>writer._view.buf + writer.position, writer.room - writer.position,
            PyBytes_AS_STRING(queue.topic_bytes), PyBytes_GET_SIZE(queue.topic_bytes),
            <const char*>body, body_bytes,
            PyByteArray_AS_STRING(self._scratch), properties_bytes,
            queue.queue_id, flag, queue.next_offset, writer.start + writer.position,
            common.sys_flag, common.born, common.born_host, common.born_bytes, common.now,
            PyBytes_AS_STRING(writer.store_host), PyBytes_GET_SIZE(writer.store_host),
            common.reconsume, 0)
        if written:
            writer.position += written
            queue.next_offset += 1
        return written

    cdef int64_t _write_batch(
        self, QueueTail queue, _Common* common, const uint8_t* body, Py_ssize_t body_bytes,
        int first_bytes,
    ) except -1:
        """Append every message of a batch, or none; how many bytes."""
        cdef LogWriter writer = self._writer
        cdef uint8_t* scratch = <uint8_t*>PyByteArray_AS_STRING(self._scratch)
        cdef const uint8_t* p = body
        cdef const uint8_t* end = body + body_bytes
        cdef int64_t total = 0, size, own
        cdef int one
        cdef int64_t around = 75 + common.born_bytes + PyBytes_GET_SIZE(writer.store_host) \
            + PyBytes_GET_SIZE(queue.topic_bytes) + first_bytes + PyBytes_GET_SIZE(self._added)
        if PyBytes_GET_SIZE(queue.topic_bytes) > 127:
            return 0
        while p < end:
            if end - p < 22:
                return 0
            size, one = i32(p), i32(p + 16)
            if size <= 22 or size > end - p or one <= 0 or one > size - 22:
                return 0
            own = size - 22 - one
            if i16(p + 20 + one) != own or memchr(p + 22 + one, 0, own) != NULL:
                return 0
            if own and p[size - 1] != 2:
                own += 1
            if first_bytes + own + PyBytes_GET_SIZE(self._added) > PROPERTIES_MAX:
                return 0
            total += around + one + own
            p += size
        if total > writer.room - writer.position:
            return 0
        p = body
        while p < end:
            size, one = i32(p), i32(p + 16)
            own = size - 22 - one
            memcpy(scratch + first_bytes, p + 22 + one, own)
            if own and p[size - 1] != 2:
                scratch[first_bytes + own] = 2
                own += 1
            if self._write(
                queue, common, p + 20, one, self._add(first_bytes + <int>own), i32(p + 12)
            ) == 0:
                raise AssertionError("the room for the whole batch was there before")
            p += size
        return total

    cdef int _add(self, int size):
        """Put what every message gets behind the properties in the scratch; their size then."""
        memcpy(
            PyByteArray_AS_STRING(self._scratch) + size, PyBytes_AS_STRING(self._added),
            PyBytes_GET_SIZE(self._added))
        return size + <int>PyBytes_GET_SIZE(self._added)

    cdef int _properties(self, Text* text, Text* unique) except -2:
        """Put what is stored as it is into the scratch; its size, or -1 if a rule is needed."""
        cdef uint8_t* out = <uint8_t*>PyByteArray_AS_STRING(self._scratch)
        cdef int size, at = 0, stop, middle, pairs = 0, i
        cdef Text names[PAIRS_MAX]
        cdef bytes added
        unique.p = NULL
        unique.size = 0
        if text.p == NULL or text.size == 0:
            return 0
        size = _unescape(text, out)
        if size <= 0 or size >= PROPERTIES_MAX:
            return -1
        if out[size - 1] != 2:  # older clients leave out the last separator
            out[size] = 2
            size += 1
        while at < size:
            stop = at
            middle = -1
            while out[stop] != 2:
                if out[stop] == 1:
                    if middle >= 0:
                        return -1
                    middle = stop
                stop += 1
            if middle <= at or middle + 1 >= stop or pairs == PAIRS_MAX:
                return -1
            names[pairs].p = out + at
            names[pairs].size = middle - at
            if _special(names[pairs].p, names[pairs].size):
                return -1
            for i in range(pairs):
                if names[i].size == names[pairs].size and memcmp(
                    names[i].p, names[pairs].p, names[i].size
                ) == 0:
                    return -1
            if is_word(&names[pairs], b"UNIQ_KEY", 8):
                unique.p = out + middle + 1
                unique.size = stop - middle - 1
            elif is_word(&names[pairs], b"WAIT", 4):
                if stop - middle - 1 != 4 or memcmp(out + middle + 1, b"true", 4) != 0:
                    return -1
            pairs += 1
            at = stop + 1
        for added in self._added_names:
            for i in range(pairs):
                if is_word(&names[i], PyBytes_AS_STRING(added), <int>PyBytes_GET_SIZE(added)):
                    return -1
        if size + PyBytes_GET_SIZE(self._added) > PROPERTIES_MAX:
            return -1
        return size

    cdef int _answer(
        self, bytearray replies, int64_t opaque, int64_t offset, int64_t count, int queue_id,
        int64_t queue_offset, Text* unique,
    ) except -1:
        cdef Py_ssize_t start = PyByteArray_GET_SIZE(replies)
        cdef bytes host = self._writer.store_host
        cdef bytes literal
        cdef list literals, slots
        literals, slots = self._reply if unique.p != NULL else self._reply_without_id
        cdef Py_ssize_t room = 72 + count * (2 * PyBytes_GET_SIZE(host) + 17) + unique.size
        cdef int i, slot
        cdef uint8_t* p
        for literal in literals:
            room += PyBytes_GET_SIZE(literal)
        PyByteArray_Resize(replies, start + room)
        p = <uint8_t*>PyByteArray_AS_STRING(replies) + start + 8
        for i in range(len(slots)):
            literal = <bytes>literals[i]
            memcpy(p, PyBytes_AS_STRING(literal), PyBytes_GET_SIZE(literal))
            p += PyBytes_GET_SIZE(literal)
            slot = slots[i]
            if slot == MSG_ID:
                p = self._put_ids(p, host, offset, count)
            elif slot == QUEUE_ID:
                p = put_decimal(p, queue_id)
            elif slot == QUEUE_OFFSET:
                p = put_decimal(p, queue_offset)
            elif slot == TRANSACTION_ID:
                memcpy(p, unique.p, unique.size)
                p += unique.size
            else:
                p = put_decimal(p, opaque)
        literal = <bytes>literals[len(slots)]
        memcpy(p, PyBytes_AS_STRING(literal), PyBytes_GET_SIZE(literal))
        p += PyBytes_GET_SIZE(literal)
        cdef uint8_t* first = <uint8_t*>PyByteArray_AS_STRING(replies) + start
        cdef Py_ssize_t size = p - first
        w32(first, <uint32_t>(size - 4))
        w32(first + 4, <uint32_t>(size - 8))
        PyByteArray_Resize(replies, start + size)
        return 0

    cdef uint8_t* _put_ids(self, uint8_t* p, bytes host, int64_t offset, int64_t count):
        """The ids of messages that lie back to back, with commas between them."""
        cdef LogWriter writer = self._writer
        cdef const uint8_t* base = <const uint8_t*>writer._view.buf
        cdef int64_t i
        for i in range(count):
            if i:
                p[0] = 0x2C
                p += 1
            p = put_hex(p, <const uint8_t*>PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host))
            p = put_offset(p, <uint64_t>offset)
            offset += i32(base + offset - writer.start)
        return p
