# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=True
"""Compiled twin of `firearrow.hot.reference.producing`, where the rules are.

Answers that it does not know at sight are left to the general code; the reference may know more.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from firearrow.hot.native.endian cimport i32, w32

from firearrow.hot.layout import VERSION
from firearrow.hot.reference import producing as _reference

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void* PyUnicode_DATA(object)

cdef enum:
    PROPERTIES_MAX = 32767

cdef object _new_tuple = tuple.__new__
cdef str DEFAULT_REGION = "DefaultRegion"
cdef const char* _HEX = b"0123456789abcdef"
cdef const char* _UPPER_HEX = b"0123456789ABCDEF"

# What is being written; it grows and stays.
cdef uint8_t* _out = NULL
cdef Py_ssize_t _out_bytes = 0


cdef int _reserve(Py_ssize_t needed) except -1:
    global _out, _out_bytes
    cdef uint8_t* grown
    if needed > _out_bytes:
        grown = <uint8_t*>PyMem_Realloc(_out, needed * 2)
        if grown == NULL:
            raise MemoryError
        _out = grown
        _out_bytes = needed * 2
    return 0


cdef inline uint8_t* _put(uint8_t* p, const char* text, Py_ssize_t size) noexcept nogil:
    memcpy(p, text, size)
    return p + size


cdef inline uint8_t* _put_int(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint8_t[20] digits
    cdef int count = 0
    cdef uint64_t rest = <uint64_t>value
    if value < 0:
        p[0] = 45
        p += 1
        rest = 0 - rest
    while True:
        digits[count] = <uint8_t>(48 + rest % 10)
        rest //= 10
        count += 1
        if not rest:
            break
    while count:
        count -= 1
        p[0] = digits[count]
        p += 1
    return p


cdef uint8_t* _put_text(uint8_t* out, const char* raw, Py_ssize_t size) noexcept nogil:
    """Inside of a JSON string, escaped as `encode_frame` does."""
    cdef Py_ssize_t i
    cdef uint8_t c
    for i in range(size):
        c = <uint8_t>raw[i]
        if c >= 32 and c != 34 and c != 92:
            out[0] = c
            out += 1
            continue
        out[0] = 92
        out += 1
        if c == 34 or c == 92:
            out[0] = c
        elif c == 10:
            out[0] = 110
        elif c == 13:
            out[0] = 114
        elif c == 9:
            out[0] = 116
        elif c == 8:
            out[0] = 98
        elif c == 12:
            out[0] = 102
        else:
            out = _put(out, b"u00", 3)
            out[0] = <uint8_t>_HEX[c >> 4]
            out += 1
            out[0] = <uint8_t>_HEX[c & 15]
        out += 1
    return out


cdef inline bint _is_plain(const char* raw, Py_ssize_t size) noexcept nogil:
    """Neither empty nor with one of the separators in it."""
    return size > 0 and memchr(raw, 1, size) == NULL and memchr(raw, 2, size) == NULL


cdef Py_ssize_t _property_bytes(dict properties) except -2:
    """How long they are as text; -1 if they cannot travel."""
    cdef Py_ssize_t total = 0, size
    cdef const char* raw
    for name, value in properties.items():
        if type(name) is not str or type(value) is not str:
            return -1
        try:
            raw = PyUnicode_AsUTF8AndSize(name, &size)
            if not _is_plain(raw, size):
                return -1
            total += size + 2
            raw = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeError:
            return -1
        if not _is_plain(raw, size):
            return -1
        total += size
    return total if total <= PROPERTIES_MAX else -1


cdef bytes _json(str text):
    """Inside of a JSON string, as `encode_frame` writes it."""
    cdef Py_ssize_t size
    cdef bytes out
    cdef const char* raw = PyUnicode_AsUTF8AndSize(text, &size)
    out = PyBytes_FromStringAndSize(NULL, 6 * size)
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(out)
    return out[: _put_text(start, raw, size) - start]


cdef class SendForm:
    cdef bytes _single
    cdef bytes _batch
    cdef bytes _end
    cdef object _broker
    cdef bytes _broker_json

    def __init__(self, str group not None, str topic not None, str creation_queue_nums not None):
        begin = b',"extFields":{"a":"%b","b":"%b","c":"TBW102","d":"%b","e":"' % (
            _json(group), _json(topic), _json(creation_queue_nums))
        self._single = b'{"code":310' + begin
        self._batch = b'{"code":320' + begin
        self._end = b',"version":%d}' % VERSION
        self._broker = None

    def frame(
        self,
        str broker_name not None,
        int queue_id,
        dict properties not None,
        bytes body not None,
        int opaque,
        int64_t born_ms,
        int sys_flag,
        int flag,
        bint batch,
    ):
        cdef Py_ssize_t size, body_bytes = PyBytes_GET_SIZE(body)
        cdef Py_ssize_t properties_bytes = _property_bytes(properties)
        cdef bytes begin = self._batch if batch else self._single
        cdef bytes broker, frame
        cdef const char* raw
        cdef uint8_t* p
        if properties_bytes < 0:
            return None
        if broker_name is not self._broker:
            self._broker_json = _json(broker_name)
            self._broker = broker_name
        broker = self._broker_json
        _reserve(PyBytes_GET_SIZE(begin) + 6 * properties_bytes + PyBytes_GET_SIZE(broker) + 512)
        p = _put(_out + 8, PyBytes_AS_STRING(begin), PyBytes_GET_SIZE(begin))
        p = _put_int(p, queue_id)
        p = _put(p, b'","f":"', 7)
        p = _put_int(p, sys_flag)
        p = _put(p, b'","g":"', 7)
        p = _put_int(p, born_ms)
        p = _put(p, b'","h":"', 7)
        p = _put_int(p, flag)
        p = _put(p, b'","i":"', 7)
        for name, value in properties.items():
            raw = PyUnicode_AsUTF8AndSize(name, &size)
            p = _put_text(p, raw, size)
            p = _put(p, b"\\u0001", 6)
            raw = PyUnicode_AsUTF8AndSize(value, &size)
            p = _put_text(p, raw, size)
            p = _put(p, b"\\u0002", 6)
        if batch:
            p = _put(p, b'","j":"0","k":"false","m":"true","n":"', 38)
        else:
            p = _put(p, b'","j":"0","k":"false","m":"false","n":"', 39)
        p = _put(p, PyBytes_AS_STRING(broker), PyBytes_GET_SIZE(broker))
        p = _put(p, b'"},"flag":0,"language":"PYTHON","opaque":', 41)
        p = _put_int(p, opaque)
        p = _put(p, PyBytes_AS_STRING(self._end), PyBytes_GET_SIZE(self._end))
        size = p - _out
        if body_bytes > 2147483647 - size:
            raise ValueError(f"a body of {body_bytes} bytes fits no frame")
        w32(w32(_out, <uint32_t>(size - 4 + body_bytes)), <uint32_t>(size - 8))
        frame = PyBytes_FromStringAndSize(NULL, size + body_bytes)
        p = _put(<uint8_t*>PyBytes_AS_STRING(frame), <const char*>_out, size)
        memcpy(p, PyBytes_AS_STRING(body), body_bytes)
        return frame


def number_keys(str head not None, int first, int last):
    cdef Py_ssize_t size, i
    cdef const char* raw = PyUnicode_AsUTF8AndSize(head, &size)
    cdef char* p
    cdef int number
    cdef list keys = []
    if first < 0 or last > 65536 or not head.isascii():
        return _reference.number_keys(head, first, last)
    for number in range(first, last):
        key = PyUnicode_New(size + 4, 127)
        p = <char*>PyUnicode_DATA(key)
        memcpy(p, raw, size)
        for i in range(4):
            p[size + i] = _UPPER_HEX[(number >> (12 - 4 * i)) & 15]
        keys.append(key)
    return keys


def encode_messages(messages, start, bytes_max):
    cdef list items = messages if type(messages) is list else list(messages)
    cdef Py_ssize_t place = start, count = len(items), used = 0, one, size, body_bytes
    cdef Py_ssize_t properties_bytes, most = min(bytes_max, 1 << 31)
    cdef const char* raw
    cdef uint8_t* p
    cdef object body
    cdef dict properties
    cdef int flag
    while place < count:
        message = items[place]
        body = message.body
        own = message.properties
        if type(body) is not bytes or type(own) is not dict or not PyBytes_GET_SIZE(body):
            return None
        properties = own
        try:
            flag = message.flag
        except (TypeError, OverflowError):
            return None
        properties_bytes = _property_bytes(properties)
        if properties_bytes < 0:
            return None
        body_bytes = PyBytes_GET_SIZE(body)
        one = 22 + body_bytes + properties_bytes
        if one > 2147483647:
            return None
        if used and used + one > most:
            break
        _reserve(used + one)
        p = w32(_out + used, <uint32_t>one)
        memset(p, 0, 8)
        p = w32(w32(p + 8, <uint32_t>flag), <uint32_t>body_bytes)
        p = _put(p, PyBytes_AS_STRING(body), body_bytes)
        p[0] = <uint8_t>(properties_bytes >> 8)
        p[1] = <uint8_t>properties_bytes
        p += 2
        for name, value in properties.items():
            raw = PyUnicode_AsUTF8AndSize(name, &size)
            p = _put(p, raw, size)
            p[0] = 1
            raw = PyUnicode_AsUTF8AndSize(value, &size)
            p = _put(p + 1, raw, size)
            p[0] = 2
            p += 1
        used += one
        place += 1
    return PyBytes_FromStringAndSize(<const char*>_out, used), place


cdef struct Span:
    const uint8_t* p
    Py_ssize_t size


cdef struct Answer:
    int64_t code
    int64_t flag
    int64_t opaque
    Span msg_id
    Span queue_id
    Span queue_offset
    Span transaction_id
    Span region
    Span trace_on


cdef inline bint _is(Span* text, const char* wanted, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.p, wanted, size) == 0


cdef const uint8_t* _string(
    const uint8_t* p, const uint8_t* stop, Span* text
) noexcept nogil:
    """A string of plain ASCII at the cursor; behind it, or NULL."""
    if p >= stop or p[0] != 34:
        return NULL
    p += 1
    text.p = p
    while p < stop and p[0] != 34:
        if p[0] < 32 or p[0] > 126 or p[0] == 92:
            return NULL
        p += 1
    if p >= stop:
        return NULL
    text.size = p - text.p
    return p + 1


cdef const uint8_t* _integer(
    const uint8_t* p, const uint8_t* stop, int64_t* value
) noexcept nogil:
    cdef const uint8_t* start = p
    value[0] = 0
    while p < stop and 48 <= p[0] <= 57 and p - start < 9:
        value[0] = value[0] * 10 + (p[0] - 48)
        p += 1
    if p == start or (start[0] == 48 and p - start > 1):
        return NULL
    return p


cdef const uint8_t* _fields(
    const uint8_t* p, const uint8_t* stop, Answer* answer
) noexcept nogil:
    """The object of extension fields; NULL for any that is not one of the usual six."""
    cdef Span name, value
    if p >= stop or p[0] != 123:
        return NULL
    while True:
        p = _string(p + 1, stop, &name)
        if p == NULL or p >= stop or p[0] != 58:
            return NULL
        p = _string(p + 1, stop, &value)
        if p == NULL or p >= stop:
            return NULL
        if _is(&name, b"msgId", 5):
            answer.msg_id = value
        elif _is(&name, b"queueId", 7):
            answer.queue_id = value
        elif _is(&name, b"queueOffset", 11):
            answer.queue_offset = value
        elif _is(&name, b"transactionId", 13):
            answer.transaction_id = value
        elif _is(&name, b"MSG_REGION", 10):
            answer.region = value
        elif _is(&name, b"TRACE_ON", 8):
            answer.trace_on = value
        else:
            return NULL
        if p[0] == 125:
            return p + 1
        if p[0] != 44:
            return NULL


cdef bint _read(const uint8_t* p, const uint8_t* stop, Answer* answer) noexcept nogil:
    """A JSON header as brokers write it; False if it has anything else in it."""
    cdef Span name, value
    cdef int64_t number
    memset(answer, 0, sizeof(Answer))
    answer.code = answer.flag = answer.opaque = -1
    if p >= stop or p[0] != 123:
        return False
    while True:
        p = _string(p + 1, stop, &name)
        if p == NULL or p >= stop or p[0] != 58:
            return False
        p += 1
        if _is(&name, b"extFields", 9):
            p = _fields(p, stop, answer)
        elif _is(&name, b"language", 8) or _is(&name, b"serializeTypeCurrentRPC", 23):
            p = _string(p, stop, &value)
        else:
            p = _integer(p, stop, &number)
            if _is(&name, b"code", 4):
                answer.code = number
            elif _is(&name, b"flag", 4):
                answer.flag = number
            elif _is(&name, b"opaque", 6):
                answer.opaque = number
            elif not _is(&name, b"version", 7):
                return False
        if p == NULL or p >= stop:
            return False
        if p[0] == 125:
            return p + 1 == stop
        if p[0] != 44:
            return False


cdef inline object _ascii(Span* text):
    cdef object made = PyUnicode_New(text.size, 127)
    memcpy(PyUnicode_DATA(made), text.p, text.size)
    return made


cdef bint _number(Span* text, Py_ssize_t digits_max, int64_t* value) noexcept nogil:
    """Decimal digits as a number."""
    cdef Py_ssize_t i
    value[0] = 0
    if not 0 < text.size <= digits_max:
        return False
    for i in range(text.size):
        if not 48 <= text.p[i] <= 57:
            return False
        value[0] = value[0] * 10 + (text.p[i] - 48)
    return True


cdef class ReceiptReader:
    cdef object _make
    cdef object _ok

    def __init__(self, make, ok):
        self._make = make
        self._ok = ok

    def take(self, bytes data not None, dict pending not None):
        cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t length = PyBytes_GET_SIZE(data), at = 0
        cdef int64_t size
        cdef Answer answer
        while length - at >= 8:
            size = i32(base + at)
            # A header and nothing behind it, in JSON.
            if not 4 <= size <= length - at - 4 or i32(base + at + 4) != size - 4:
                break
            if not _read(base + at + 8, base + at + 4 + size, &answer):
                break
            if answer.code != 0 or answer.flag != 1 or not self._settle(&answer, pending):
                break
            at += 4 + <Py_ssize_t>size
        return at

    cdef bint _settle(self, Answer* answer, dict pending) except -1:
        cdef int64_t queue_id, offset
        cdef Py_ssize_t size
        cdef const char* raw
        cdef bint same
        cdef object opaque = answer.opaque
        cdef object entry = pending.get(opaque)
        if entry is None:
            return False
        sent = (<tuple>entry)[3]
        if sent is None or answer.msg_id.p == NULL:
            return False
        msg_id, queue = sent
        if (
            not _number(&answer.queue_id, 9, &queue_id)
            or (answer.queue_id.p[0] == 48 and answer.queue_id.size > 1)
            or not _number(&answer.queue_offset, 18, &offset)
            or queue.queue_id != queue_id
        ):
            return False
        region = DEFAULT_REGION
        if answer.region.p != NULL and not _is(&answer.region, b"DefaultRegion", 13):
            if not answer.region.size:
                return False
            region = _ascii(&answer.region)
        transaction_id = None
        if answer.transaction_id.p != NULL:
            raw = PyUnicode_AsUTF8AndSize(msg_id, &size)  # it mostly is the same id
            same = _is(&answer.transaction_id, raw, size)
            transaction_id = msg_id if same else _ascii(&answer.transaction_id)
        waiting = (<tuple>entry)[0]
        del pending[opaque]
        if not waiting.done():
            waiting.set_result(
                _new_tuple(
                    self._make,
                    (
                        self._ok,
                        msg_id,
                        _ascii(&answer.msg_id),
                        queue,
                        offset,
                        transaction_id,
                        None,
                        region,
                        not _is(&answer.trace_on, b"false", 5),
                    ),
                )
            )
        return True
