# cython: language_level=3, boundscheck=False, wraparound=False, binding=True
"""Compiled twin of `firearrow.hot.reference.writing`, where the rules are."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcpy

from firearrow.hot.native.endian cimport i16, i32
from firearrow.hot.native.paging cimport populate_write
from firearrow.hot.native.queues cimport QueueTail
from firearrow.hot.native.records cimport write_raw

from firearrow.hot.layout import LOOPBACK_HOST
from firearrow.hot.reference import writing as _reference

cdef enum:
    BULK_BYTES = 8 * 1024  # what is less is not worth asking the system for

cdef bytes _LOOPBACK = LOOPBACK_HOST


cdef class StoreMessage:
    def __init__(
        self,
        str topic not None,
        int queue_id,
        bytes body not None,
        bytes properties not None=b"",
        *,
        int flag=0,
        int sys_flag=0,
        int64_t born_timestamp=0,
        bytes born_host not None=_LOOPBACK,
        bytes store_host=None,
        int reconsume_times=0,
        int64_t prepared_offset=0,
    ):
        cdef Py_ssize_t born_bytes = PyBytes_GET_SIZE(born_host)
        cdef Py_ssize_t store_bytes = PyBytes_GET_SIZE(store_host) if store_host else 8
        if (born_bytes != 8 and born_bytes != 20) or (store_bytes != 8 and store_bytes != 20):
            raise ValueError("a host is 4 or 16 bytes of IP and 4 of port")
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.physical_offset = self.queue_offset = -1
        self.store_timestamp = self.size = 0

    def __repr__(self):
        return _reference.StoreMessage.__repr__(self)


cdef class LogWriter:
    def __init__(self, bytes store_host not None, body_bytes_max):
        self.store_host = store_host
        self.body_bytes_max = body_bytes_max
        self.start = self.position = self.room = 0

    def __dealloc__(self):
        if self._open:
            PyBuffer_Release(&self._view)

    def open(self, buffer, *, start, position, room):
        self.close()
        PyObject_GetBuffer(buffer, &self._view, PyBUF_WRITABLE)
        self._open = True
        assert 0 <= position <= self._view.len
        assert room <= self._view.len
        self.start = start
        self.position = position
        self.room = room
        self._ready = position

    def close(self):
        self.room = 0
        if self._open:
            self._open = False
            PyBuffer_Release(&self._view)

    cdef void will_write(self, int64_t size) noexcept nogil:
        """About so much comes now: have the pages for it at once, not one fault after the other.

        Only those, since a page that was made ready to be written goes to the disk as written.
        """
        cdef int64_t stop = self.position + size
        if self._ready < self.position:
            self._ready = self.position
        if stop > self.room:
            stop = self.room
        if stop - self._ready >= BULK_BYTES:
            populate_write(<uint8_t*>self._view.buf + self._ready, stop - self._ready)
            self._ready = stop

    cpdef int64_t append(
        self, StoreMessage message, QueueTail queue, int64_t store_timestamp
    ) except -2:
        cdef bytes body = message.body
        cdef bytes properties = message.properties
        cdef bytes host = message.store_host if message.store_host else self.store_host
        cdef bytes born = message.born_host
        cdef bytes topic = queue.topic_bytes
        cdef int64_t offset = self.start + self.position
        cdef int64_t queue_offset = 0, size
        cdef bint counted = (message.sys_flag & 0x4) == 0
        if PyBytes_GET_SIZE(body) > self.body_bytes_max or PyBytes_GET_SIZE(properties) > 32767 \
                or memchr(PyBytes_AS_STRING(properties), 0, PyBytes_GET_SIZE(properties)) != NULL:
            return -1
        if self.room <= self.position:
            return 0
        if counted:
            queue_offset = queue.next_offset
        size = write_raw(
            <uint8_t*>self._view.buf + self.position, self.room - self.position,
            PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic),
            PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body),
            PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties),
            queue.queue_id, message.flag, queue_offset, offset, message.sys_flag,
            message.born_timestamp, PyBytes_AS_STRING(born), PyBytes_GET_SIZE(born),
            store_timestamp, PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host),
            message.reconsume_times, message.prepared_offset)
        if size == 0:
            return 0
        self.position += size
        if counted:
            queue.next_offset = queue_offset + 1
        message.physical_offset = offset
        message.size = size
        message.queue_offset = queue_offset
        message.store_timestamp = store_timestamp
        return offset + size

    def append_parts(
        self, StoreMessage message not None, QueueTail queue not None, store_timestamp, skip
    ):
        cdef bytes body = message.body
        cdef bytes behind = message.properties
        cdef bytes host = message.store_host if message.store_host else self.store_host
        cdef bytes born = message.born_host
        cdef bytes topic = queue.topic_bytes
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(body)
        cdef const uint8_t* end = p + PyBytes_GET_SIZE(body)
        cdef const uint8_t* at
        cdef int64_t left = skip, now = store_timestamp, total = 0, size, written
        cdef int64_t own, one, queue_offset
        cdef int64_t first = self.start + self.position
        cdef int64_t first_in_queue = queue.next_offset
        cdef bint counted = (message.sys_flag & 0x4) == 0
        cdef int64_t around = 74 + PyBytes_GET_SIZE(born) + PyBytes_GET_SIZE(host) \
            + PyBytes_GET_SIZE(topic) + (1 if PyBytes_GET_SIZE(topic) <= 127 else 2) \
            + PyBytes_GET_SIZE(behind)
        cdef uint8_t[32768] properties
        while p < end and left > 0:
            p += i32(p)
            left -= 1
        at = p
        while at < end:
            total += around + i32(at) - 22
            at += i32(at)
        if total == 0 or total > self.room - self.position:
            return 0
        self.will_write(total)
        while p < end:
            size, one = i32(p), i32(p + 16)
            own = size - 22 - one
            if own + PyBytes_GET_SIZE(behind) > 32767:
                raise AssertionError("a batch that nobody has counted")
            memcpy(properties, p + 22 + one, own)
            memcpy(properties + own, PyBytes_AS_STRING(behind), PyBytes_GET_SIZE(behind))
            queue_offset = queue.next_offset if counted else 0
            written = write_raw(
                <uint8_t*>self._view.buf + self.position, self.room - self.position,
                PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic),
                <const char*>p + 20, one,
                <const char*>properties, own + PyBytes_GET_SIZE(behind),
                queue.queue_id, i32(p + 12), queue_offset, self.start + self.position,
                message.sys_flag, message.born_timestamp,
                PyBytes_AS_STRING(born), PyBytes_GET_SIZE(born), now,
                PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host),
                message.reconsume_times, message.prepared_offset)
            if written == 0:
                raise AssertionError("the room for all of them was there before")
            self.position += written
            if counted:
                queue.next_offset = queue_offset + 1
            p += size
        message.physical_offset = first
        message.queue_offset = first_in_queue
        message.size = total
        message.store_timestamp = now
        return self.start + self.position


def count_parts(bytes body not None, behind):
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(body)
    cdef const uint8_t* end = p + PyBytes_GET_SIZE(body)
    cdef int64_t size, one, own, more = behind
    cdef Py_ssize_t count = 0
    while p < end:
        if end - p < 22:
            return 0
        size, one = i32(p), i32(p + 16)
        if size <= 22 or size > end - p or one <= 0 or one > size - 22:
            return 0
        own = size - 22 - one
        if i16(p + 20 + one) != own or own + more > 32767:
            return 0
        if own and (p[size - 1] != 2 or memchr(p + 22 + one, 0, own) != NULL):
            return 0
        count += 1
        p += size
    return count
