# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=True
"""Compiled twin of `firearrow.hot.reference.pulling`, where the rules are.

A reply is one piece of memory: records are copied once, neighbours in the log in one go. That costs
less than handing over each record of an answer by itself.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from firearrow.hot.native.commands import Command, encode_head
from firearrow.hot.native.endian cimport i32, i64, w32
from firearrow.hot.native.queues cimport QueueTail, record_of, record_sound
from firearrow.hot.native.scanning cimport (
    Head, Text, bare_value, is_word, plain_string, put_decimal, read_head, whole_decimal,
)
from firearrow.hot.native.writing cimport LogWriter

from firearrow.hot.reference.pulling import PLACES, Pulled, own_filter, pull_key

cdef extern from "Python.h":
    ctypedef struct PyObject

cdef enum:
    ENTRY_BYTES = 20
    KEY_BYTES_MAX = 1024
    FIELDS = 11
    SLOTS = 4  # of a reply: three places and the opaque
    # Fields of a pull
    GROUP = 0
    TOPIC = 1
    QUEUE_ID = 2
    QUEUE_OFFSET = 3
    MAX_COUNT = 4
    FLAGS = 5
    COMMIT_OFFSET = 6
    SUSPEND_MS = 7
    SUB_VERSION = 8
    SUBSCRIPTION = 9
    EXPRESSION_TYPE = 10

cdef int32_t FILLER_SIZE = 0x7FFFFFFF
cdef tuple _SENTINELS = ("@next@", "@min@", "@max@", "1987654321")


cdef class PullGate:
    cdef public str topic
    cdef public str group
    cdef public list queues
    cdef public object codes
    cdef public int64_t sub_version
    cdef public int64_t most
    cdef public int64_t bytes_max
    cdef public int64_t scan
    cdef public dict committed
    cdef public dict pulled
    cdef public dict reply
    cdef public int64_t pulls
    cdef public int64_t messages
    cdef public int64_t size
    cdef list _literals
    cdef list _slots
    cdef Py_ssize_t _literal_bytes

    def __init__(
        self, str topic not None, str group not None, list queues not None, *, codes, sub_version,
        most, bytes_max, scan, dict committed not None, dict pulled not None, dict reply not None,
    ):
        self.topic = topic
        self.group = group
        self.queues = queues
        self.codes = codes
        self.sub_version = sub_version
        self.most = most
        self.bytes_max = bytes_max
        self.scan = scan
        self.committed = committed
        self.pulled = pulled
        self.reply = reply
        self.pulls = self.messages = self.size = 0
        self._learn_reply()

    def _learn_reply(self):
        """Cut a reply of the general encoder into what is always the same and what is not."""
        ext = {**self.reply, **dict(zip(PLACES, _SENTINELS))}
        reply = Command(0, ext, opaque=int(_SENTINELS[3]), flag=1, remark="FOUND")
        text = encode_head(reply, 0)[8:].decode()
        found = sorted((text.index(word), slot, word) for slot, word in enumerate(_SENTINELS))
        self._literals = []
        self._slots = []
        at = 0
        for start, slot, word in found:
            self._literals.append(text[at:start].encode())
            self._slots.append(slot)
            at = start + len(word)
        self._literals.append(text[at:].encode())
        self._literal_bytes = sum(map(len, self._literals))


cdef struct _Fields:
    Text field[FIELDS]


cdef inline int _field_of(Text* name) noexcept nogil:
    """Which field this is; -1 for one that is not looked at."""
    if name.size == 5:
        return TOPIC if is_word(name, b"topic", 5) else -1
    if name.size == 7:
        if is_word(name, b"queueId", 7):
            return QUEUE_ID
        return FLAGS if is_word(name, b"sysFlag", 7) else -1
    if name.size == 10:
        if is_word(name, b"maxMsgNums", 10):
            return MAX_COUNT
        return SUB_VERSION if is_word(name, b"subVersion", 10) else -1
    if name.size == 11:
        return QUEUE_OFFSET if is_word(name, b"queueOffset", 11) else -1
    if name.size == 12:
        if is_word(name, b"commitOffset", 12):
            return COMMIT_OFFSET
        return SUBSCRIPTION if is_word(name, b"subscription", 12) else -1
    if name.size == 13:
        return GROUP if is_word(name, b"consumerGroup", 13) else -1
    if name.size == 14:
        return EXPRESSION_TYPE if is_word(name, b"expressionType", 14) else -1
    if name.size == 20:
        return SUSPEND_MS if is_word(name, b"suspendTimeoutMillis", 20) else -1
    return -1


cdef const uint8_t* _ext_fields(const uint8_t* p, const uint8_t* end, void* out) noexcept nogil:
    """``{"topic":"...",...}`` from behind its brace; NULL if it is not plain."""
    cdef _Fields* fields = <_Fields*>out
    cdef Text name, value
    cdef int which
    while p + 1 < end and p[0] == 0x22:
        p = plain_string(p + 1, end, &name)
        if p == NULL or p + 1 >= end or p[0] != 0x3A:
            return NULL
        p = plain_string(p + 2, end, &value) if p[1] == 0x22 else bare_value(p + 1, end, &value)
        if p == NULL or p >= end:
            return NULL
        which = _field_of(&name)
        if which >= 0:
            fields.field[which] = value
        if p[0] == 0x7D:
            return p + 1
        if p[0] != 0x2C:
            return NULL
        p += 1
    return NULL


cdef struct _Run:
    # Records that lie back to back in the log.
    const uint8_t* p
    Py_ssize_t size


cdef struct _Found:
    int64_t examined
    int64_t records
    int64_t size
    Py_ssize_t runs


cdef inline int64_t _least(int64_t a, int64_t b) noexcept nogil:
    return a if a < b else b


cdef class PullPath:
    cdef LogWriter _writer
    cdef dict _gates
    cdef dict _files
    cdef int64_t _file_bytes
    cdef int64_t _entries_per_file
    cdef int64_t _memory_bytes
    cdef int64_t _verified_from
    cdef object _look_ahead
    cdef object _is_warm
    cdef _Run* _runs
    cdef Py_ssize_t _runs_room
    cdef int64_t _commits
    cdef int64_t _messages

    def __init__(
        self, LogWriter writer not None, dict gates not None, dict files not None, *, file_bytes,
        entries_per_file, memory_bytes, verified_from, look_ahead, is_warm=None,
    ):
        self._writer = writer
        self._gates = gates
        self._files = files
        self._file_bytes = file_bytes
        self._entries_per_file = entries_per_file
        self._memory_bytes = memory_bytes
        self._verified_from = verified_from
        self._look_ahead = look_ahead
        self._is_warm = is_warm

    def __dealloc__(self):
        free(self._runs)

    def serve(self, data, frame_bytes_max, reply_bytes_max):
        cdef Py_buffer buffer
        cdef int64_t most = frame_bytes_max, enough = reply_bytes_max, written = 0
        cdef Py_ssize_t used = 0, size
        cdef list replies = []
        cdef bytes reply
        self._commits = self._messages = 0
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            while written < enough and buffer.len - used >= 8:
                size = 4 + <Py_ssize_t>i32(<const uint8_t*>buffer.buf + used)
                if size < 8 or size > most or size > buffer.len - used:
                    break
                reply = self._pull(<const uint8_t*>buffer.buf + used, size)
                if reply is None:
                    break
                replies.append(reply)
                written += PyBytes_GET_SIZE(reply)
                used += size
        finally:
            PyBuffer_Release(&buffer)
        return Pulled(used, len(replies), self._messages, self._commits, replies)

    cdef bytes _pull(self, const uint8_t* frame, Py_ssize_t size):
        """The reply to one frame; None if it is not ordinary, and nothing has changed."""
        cdef uint32_t word = <uint32_t>i32(frame + 4)
        cdef Head head
        cdef _Fields fields
        cdef int64_t number[FIELDS]
        cdef int i
        cdef PullGate gate
        cdef QueueTail queue
        if word >> 24 or <Py_ssize_t>word != size - 8:
            return None
        memset(&fields, 0, sizeof(_Fields))
        if not read_head(frame + 8, frame + size, &head, _ext_fields, &fields):
            return None
        if (head.code != 11 and head.code != 361) or head.flag != 0:
            return None
        if fields.field[GROUP].p == NULL or fields.field[TOPIC].p == NULL:
            return None
        for i in range(QUEUE_ID, SUB_VERSION + 1):
            if not whole_decimal(&fields.field[i], &number[i]):
                return None
        if not -2147483648 <= number[MAX_COUNT] <= 2147483647 or number[FLAGS] & ~0x17 \
                or number[FLAGS] < 0:
            return None
        gate = self._gate_of(head.code, &fields, (number[FLAGS] & 4) != 0)
        if gate is None or number[SUB_VERSION] > gate.sub_version \
                or not 0 <= number[QUEUE_ID] < PyList_GET_SIZE(gate.queues):
            return None
        if gate.queues[number[QUEUE_ID]] is None:
            return None
        queue = <QueueTail?>gate.queues[number[QUEUE_ID]]
        if not queue.min_offset <= number[QUEUE_OFFSET] < queue.max_offset:
            return None
        return self._read(
            gate, queue, number[QUEUE_OFFSET], number[MAX_COUNT], head.opaque,
            number[COMMIT_OFFSET] if number[FLAGS] & 1 else -1)

    cdef PullGate _gate_of(self, int code, _Fields* fields, bint own):
        cdef uint8_t[KEY_BYTES_MAX] key
        cdef uint8_t* p = put_decimal(key, code)
        cdef int64_t size = 32 + fields.field[GROUP].size + fields.field[TOPIC].size
        cdef PyObject* found
        if own:
            size += fields.field[SUBSCRIPTION].size + fields.field[EXPRESSION_TYPE].size
        if size > KEY_BYTES_MAX:
            return None
        p = _put_text(p, &fields.field[GROUP])
        p = _put_text(p, &fields.field[TOPIC])
        p[0] = 0
        p += 1
        if own:
            p -= 1
            p = _put_text(p, &fields.field[SUBSCRIPTION])
            p = _put_text(p, &fields.field[EXPRESSION_TYPE])
        wanted = PyBytes_FromStringAndSize(<const char*>key, p - key)
        found = PyDict_GetItem(self._gates, wanted)
        return None if found == NULL else <PullGate?><object>found

    cdef bytes _read(
        self, PullGate gate, QueueTail queue, int64_t offset, int64_t max_count, int64_t opaque,
        int64_t commit,
    ):
        cdef int64_t most = _least(max_count, gate.most)
        cdef int64_t scan = (most if most > 1 else 1) if gate.codes is None \
            else (gate.scan if gate.scan > max_count else max_count)
        cdef int64_t needed = _least(scan, _least(
            queue.max_offset - offset,
            self._entries_per_file - offset % self._entries_per_file))
        cdef const uint8_t* entries
        cdef Py_buffer memory
        cdef int64_t first, start, stop
        cdef _Found found
        cdef object data
        cdef bytes reply
        if offset < queue.tail_first:
            if not _in_window(queue, offset, needed):
                self._look_ahead(queue, offset)
                if not _in_window(queue, offset, needed):
                    return None
            entries = <const uint8_t*>PyBytes_AS_STRING(queue.window) \
                + (offset - queue.window_first) * ENTRY_BYTES
        else:
            entries = <const uint8_t*>PyByteArray_AS_STRING(queue.tail) \
                + (offset - queue.tail_first) * ENTRY_BYTES
            if (offset - queue.tail_first + needed) * ENTRY_BYTES > PyByteArray_GET_SIZE(queue.tail):
                return None
        first = i64(entries)
        if first < 0:
            return None
        start = first - first % self._file_bytes
        data = self._files.get(start)
        if data is None:
            return None
        if first < self._writer.start + self._writer.position - self._memory_bytes:
            stop = i64(entries + (needed - 1) * ENTRY_BYTES) + i32(
                entries + (needed - 1) * ENTRY_BYTES + 8)
            if self._is_warm is None or not self._is_warm(first, stop):
                return None
        PyObject_GetBuffer(data, &memory, PyBUF_SIMPLE)
        try:
            if not self._gather(gate, queue, offset, entries, needed, most, start, &memory, &found):
                return None
            reply = self._write(gate, queue, opaque, offset + found.examined, &found)
        finally:
            PyBuffer_Release(&memory)
        if commit >= 0:
            gate.committed[queue.queue_id] = commit
            self._commits += 1
        gate.pulled[queue.queue_id] = offset + found.examined
        gate.pulls += 1
        gate.messages += found.records
        gate.size += found.size
        self._messages += found.records
        return reply

    cdef bint _gather(
        self, PullGate gate, QueueTail queue, int64_t offset, const uint8_t* entries,
        int64_t count, int64_t most, int64_t start, Py_buffer* memory, _Found* found,
    ) except -1:
        """Find the records; False if one is not to be had, or not all are in this file."""
        cdef const uint8_t* base = <const uint8_t*>memory.buf
        cdef const uint8_t* p
        cdef int64_t number, physical, place, last = -1
        cdef int32_t size
        cdef bint unproven
        cdef object codes = gate.codes
        memset(found, 0, sizeof(_Found))
        for number in range(count):
            p = entries + number * ENTRY_BYTES
            physical = i64(p)
            size = i32(p + 8)
            if found.records and (
                found.records >= most or found.size + size > gate.bytes_max
            ):
                break
            if codes is None:
                if size == FILLER_SIZE:
                    return False
            elif size == FILLER_SIZE or i32(p + 16) not in codes:
                found.examined += 1
                continue
            place = physical - start
            if place < 0 or size <= 0 or place + size > self._file_bytes \
                    or place + size > memory.len:
                return False
            unproven = physical < self._verified_from
            if not record_sound(base, place, place + size, start, unproven):
                return False
            if unproven and not record_of(
                base + place, size, queue.topic_bytes, queue.queue_id, offset + number
            ):
                return False
            found.examined += 1
            found.records += 1
            found.size += size
            if place == last:
                self._runs[found.runs - 1].size += size
            else:
                self._add_run(found, base + place, size)
            last = place + size
        return found.records > 0

    cdef int _add_run(self, _Found* found, const uint8_t* p, Py_ssize_t size) except -1:
        cdef void* grown
        if found.runs == self._runs_room:
            grown = realloc(self._runs, (2 * self._runs_room + 64) * sizeof(_Run))
            if grown == NULL:
                raise MemoryError
            self._runs = <_Run*>grown
            self._runs_room = 2 * self._runs_room + 64
        self._runs[found.runs].p = p
        self._runs[found.runs].size = size
        found.runs += 1
        return 0

    cdef bytes _write(
        self, PullGate gate, QueueTail queue, int64_t opaque, int64_t following, _Found* found
    ):
        cdef uint8_t digits[SLOTS][24]
        cdef Py_ssize_t digit_bytes[SLOTS]
        cdef int64_t values[SLOTS]
        cdef Py_ssize_t head = gate._literal_bytes
        cdef Py_ssize_t i
        cdef int slot
        cdef bytes literal, reply
        cdef uint8_t* p
        values[0], values[1], values[2], values[3] = (
            following, queue.min_offset, queue.max_offset, opaque)
        for i in range(SLOTS):
            digit_bytes[i] = put_decimal(digits[i], values[i]) - digits[i]
            head += digit_bytes[i]
        reply = PyBytes_FromStringAndSize(NULL, 8 + head + found.size)
        p = <uint8_t*>PyBytes_AS_STRING(reply)
        p = w32(p, <uint32_t>(4 + head + found.size))
        p = w32(p, <uint32_t>head)
        for i in range(SLOTS + 1):
            literal = <bytes>gate._literals[i]
            memcpy(p, PyBytes_AS_STRING(literal), PyBytes_GET_SIZE(literal))
            p += PyBytes_GET_SIZE(literal)
            if i < SLOTS:
                slot = gate._slots[i]
                memcpy(p, digits[slot], digit_bytes[slot])
                p += digit_bytes[slot]
        for i in range(found.runs):
            memcpy(p, self._runs[i].p, self._runs[i].size)
            p += self._runs[i].size
        return reply


cdef inline uint8_t* _put_text(uint8_t* p, Text* text) noexcept nogil:
    """A zero byte and a field, as `pull_key` puts them."""
    p[0] = 0
    if text.size:
        memcpy(p + 1, text.p, text.size)
    return p + 1 + text.size


cdef inline bint _in_window(QueueTail queue, int64_t offset, int64_t count):
    return offset >= queue.window_first and (
        (offset - queue.window_first + count) * ENTRY_BYTES <= PyBytes_GET_SIZE(queue.window))
