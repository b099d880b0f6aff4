# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=True
"""Compiled twin of `firearrow.hot.reference.keys`; the layout is drawn there."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from firearrow.hot.native.endian cimport i32, i64, w32, w64

cdef enum:
    HEADER_BYTES = 40
    SLOT_BYTES = 4
    ENTRY_BYTES = 20

cdef int64_t SECONDS_MAX = 2147483647
cdef uint8_t[40] _nothing


cdef class KeyTable:
    def __init__(self, buffer, slots, entries):
        PyObject_GetBuffer(buffer, &self._view, PyBUF_WRITABLE)
        self._open = True
        assert self._view.len == HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES
        self.slots = slots
        self.entries = entries
        self.limit = entries
        self._p = <uint8_t*>self._view.buf
        self._entries = self._p + HEADER_BYTES + self.slots * SLOT_BYTES

    def __dealloc__(self):
        if self._open:
            PyBuffer_Release(&self._view)

    @property
    def header(self):
        cdef uint8_t* p = self._p
        return i64(p), i64(p + 8), i64(p + 16), i64(p + 24), i32(p + 32), self.next_entry()

    @property
    def end_offset(self):
        return i64(self._p + 24)

    @property
    def free(self):
        return max(0, self.limit - self.next_entry())

    cdef int32_t next_entry(self) noexcept nogil:
        cdef int32_t count = i32(self._p + 36)
        return count if count > 0 else 1

    cdef void insert_one(self, int32_t hashed, int64_t offset, int64_t timestamp) noexcept nogil:
        """The caller has seen that there is room."""
        cdef uint8_t* p = self._p
        cdef int32_t count = self.next_entry()
        cdef uint8_t* slot = p + HEADER_BYTES + (hashed % self.slots) * SLOT_BYTES
        cdef uint8_t* entry = self._entries + <int64_t>count * ENTRY_BYTES
        cdef int32_t previous = i32(slot)
        cdef int64_t begin = i64(p), seconds = 0
        if not 0 < previous <= count:
            previous = 0
        if begin > 0 and timestamp > begin:
            seconds = (timestamp - begin) // 1000
            if seconds > SECONDS_MAX:
                seconds = SECONDS_MAX
        entry = w32(entry, <uint32_t>hashed)
        entry = w64(entry, <uint64_t>offset)
        entry = w32(entry, <uint32_t>seconds)
        w32(entry, <uint32_t>previous)
        w32(slot, <uint32_t>count)
        if count == 1:
            w64(p, <uint64_t>timestamp)
            w64(p + 16, <uint64_t>offset)
        if previous == 0:
            w32(p + 32, <uint32_t>(i32(p + 32) + 1))
        w64(p + 8, <uint64_t>timestamp)
        w64(p + 24, <uint64_t>offset)
        w32(p + 36, <uint32_t>(count + 1))

    def insert(self, hashes, first, physical_offset, store_timestamp):
        cdef int64_t offset = physical_offset, timestamp = store_timestamp
        cdef Py_ssize_t done = first, many = len(hashes)
        while done < many and self.next_entry() < self.limit:
            self.insert_one(hashes[done], offset, timestamp)
            done += 1
        return done

    def restore(self, count, end_timestamp, *, begin_timestamp, begin_offset):
        assert 1 <= count <= self.entries
        cdef int64_t number, stop = count, end_offset = 0
        cdef int64_t begin_time = begin_timestamp, end_time = end_timestamp, begin = begin_offset
        cdef int64_t newest = begin
        cdef bint in_order = True
        cdef int32_t used = 0, hashed
        cdef uint8_t* p = self._p
        cdef uint8_t* entry
        cdef uint8_t* slot
        with nogil:
            memset(p + HEADER_BYTES, 0, self.slots * SLOT_BYTES)
            for number in range(1, stop):
                entry = self._entries + number * ENTRY_BYTES
                hashed = i32(entry) & 0x7FFFFFFF
                end_offset = i64(entry + 4)
                if end_offset < newest:
                    in_order = False
                newest = end_offset
                slot = p + HEADER_BYTES + (hashed % self.slots) * SLOT_BYTES
                used += i32(slot) == 0
                w32(entry + 16, <uint32_t>i32(slot))
                w32(slot, <uint32_t>number)
            w64(p, <uint64_t>begin_time)
            w64(p + 8, <uint64_t>end_time)
            w64(p + 16, <uint64_t>begin)
            w64(p + 24, <uint64_t>end_offset)
            w32(p + 32, <uint32_t>used)
            w32(p + 36, <uint32_t>stop)
        return in_order

    def release(self):
        if self._open:
            self._open = False
            self._p = &_nothing[0]
            self.limit = 0
            PyBuffer_Release(&self._view)
