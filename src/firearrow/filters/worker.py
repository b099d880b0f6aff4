"""A process that runs one filter of a user, and can do nothing else.

It is started by `filters/server.py` as a program of its own and imports nothing of FireArrow. What
holds the filter are limits of the kernel, set before the first line of its code runs:

1. A list of some thirty system calls (seccomp) that compute, use memory, and read and write what is
   open. There is none to open a file or a socket, to start a process or a thread, to send a signal.
2. Open are one socket to the broker, and nothing.
3. Memory and processor time end (rlimits); how long a batch may take is watched by the broker.
4. A network namespace without a network, where the kernel lets us have one.

A machine on which the first cannot be had runs no filters. Builtins without `open`, `exec` and the
like are for clear errors, not for safety.

    request    | length 4 | source of the filter                              first, once
               | length 4 | count 4 | count times: properties 4, body 4, compression 1 |
                          | count times: properties, body |                   then, batches
    reply      | length 4 | 0 | a byte for each message: 1 it is wanted, 0 it is not |
               | length 4 | 1 | what went wrong, as text |
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import os
import resource
import signal
import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Matches = Callable[[dict[str, str], bytes], object]

BODY_BYTES_MAX: Final = 16 * 1024 * 1024  # unpacked
ERROR_CHARS_MAX: Final = 500
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
FUNCTION: Final = "matches"
OPEN_FILES: Final = 8

# What a filter may import; all of it is loaded before the door closes.
MODULES: Final = (
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "collections",
    "collections.abc",
    "datetime",
    "decimal",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "statistics",
    "string",
    "struct",
    "time",
    "typing",
    "unicodedata",
    "urllib.parse",
    "uuid",
    "zlib",
    "zoneinfo",
)
# And what those load when they are used for the first time.
LOADED_BY_THOSE: Final = ("_strptime", "encodings.ascii", "encodings.cp1252", "encodings.latin_1")
FORBIDDEN_BUILTINS: Final = {
    "__import__",
    "breakpoint",
    "compile",
    "eval",
    "exec",
    "exit",
    "help",
    "input",
    "open",
    "quit",
}

# --- system calls ---------------------------------------------------------------------------
# By machine: the number that the kernel has for it, and the numbers of the calls that are allowed.
_ALLOWED: Final[dict[str, tuple[int, dict[str, int]]]] = {
    "x86_64": (
        0xC000003E,
        {
            "read": 0,
            "write": 1,
            "close": 3,
            "fstat": 5,
            "lseek": 8,
            "mmap": 9,
            "mprotect": 10,
            "munmap": 11,
            "brk": 12,
            "rt_sigaction": 13,
            "rt_sigprocmask": 14,
            "rt_sigreturn": 15,
            "sched_yield": 24,
            "mremap": 25,
            "madvise": 28,
            "getpid": 39,
            "exit": 60,
            "gettimeofday": 96,
            "sigaltstack": 131,
            "gettid": 186,
            "time": 201,
            "futex": 202,
            "restart_syscall": 219,
            "clock_gettime": 228,
            "clock_getres": 229,
            "exit_group": 231,
            "getrandom": 318,
            "membarrier": 324,
            "rseq": 334,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "close": 57,
            "lseek": 62,
            "read": 63,
            "write": 64,
            "fstat": 80,
            "exit": 93,
            "exit_group": 94,
            "futex": 98,
            "clock_gettime": 113,
            "clock_getres": 114,
            "sched_yield": 124,
            "restart_syscall": 128,
            "sigaltstack": 132,
            "rt_sigaction": 134,
            "rt_sigprocmask": 135,
            "rt_sigreturn": 139,
            "gettimeofday": 169,
            "getpid": 172,
            "gettid": 178,
            "brk": 214,
            "munmap": 215,
            "mremap": 216,
            "mmap": 222,
            "mprotect": 226,
            "madvise": 233,
            "getrandom": 278,
            "membarrier": 283,
            "rseq": 293,
        },
    ),
}
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_EPERM: Final = 1
# Instructions of the kernel's packet filter: load a word, jump if equal, jump if not below, return.
_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_NOT_BELOW: Final = 0x35
_RETURN: Final = 0x06
_RETURN_ALLOW: Final = 0x7FFF0000
_RETURN_ERRNO: Final = 0x00050000
_RETURN_KILL: Final = 0x80000000
_X32_CALLS: Final = 0x40000000  # another way in on x86_64


class CannotIsolate(Exception):
    """This machine cannot hold a filter."""


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def call_filter(machine: str) -> bytes:
    """The program that the kernel runs at every system call.

    | operation 2 | jump if true 1 | jump if false 1 | operand 4 |, native byte order
    """
    if machine not in _ALLOWED:
        raise CannotIsolate(f"system calls of {machine} are not known here: {sorted(_ALLOWED)} are")
    architecture, calls = _ALLOWED[machine]
    numbers = sorted(calls.values())
    program = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _RETURN_KILL),
        (_LOAD, 0, 0, 0),
        (_JUMP_NOT_BELOW, len(numbers), 0, _X32_CALLS),
    ]
    for place, number in enumerate(numbers):
        program.append((_JUMP_EQUAL, len(numbers) - place, 0, number))
    program += [(_RETURN, 0, 0, _RETURN_ERRNO | _EPERM), (_RETURN, 0, 0, _RETURN_ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def limit_resources(memory_bytes: int, cpu_seconds: int) -> None:
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limit, limit))


def close_the_door() -> None:
    """From here on the process computes, and talks to its broker; CannotIsolate if it would not."""
    if not sys.platform.startswith("linux"):
        raise CannotIsolate(f"filters need Linux, and this is {sys.platform}")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)  # a second wall; not every kernel has it for us
    program = call_filter(os.uname().machine)
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = _Program(len(program) // 8, ctypes.cast(buffer, ctypes.c_char_p))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0
    ):
        reason = os.strerror(ctypes.get_errno())
        raise CannotIsolate(f"the kernel does not limit system calls (seccomp): {reason}")
    try:
        os.close(os.open("/", os.O_RDONLY))
    except PermissionError:
        return
    raise CannotIsolate("the kernel took the limits on system calls, and does not heed them")


# --- the filter -----------------------------------------------------------------------------


def guarded_import(name: str, *arguments: Any) -> Any:  # noqa: ANN401
    if name in MODULES or name in LOADED_BY_THOSE:
        return builtins.__import__(name, *arguments)
    raise ImportError(f"filters may import {', '.join(MODULES)}; not {name}")


def load_filter(source: str) -> Matches:
    allowed = {
        name: value for name, value in vars(builtins).items() if name not in FORBIDDEN_BUILTINS
    }
    allowed["__import__"] = guarded_import
    space: dict[str, Any] = {"__builtins__": allowed, "__name__": "filter"}
    exec(compile(source, "filter", "exec", dont_inherit=True), space)  # behind the closed door
    matches = space.get(FUNCTION)
    if not callable(matches):
        raise TypeError(f"it defines no function {FUNCTION}(properties, body)")
    return matches  # type: ignore[no-any-return]


def judge(matches: Matches, batch: bytes) -> bytes:
    """A byte for each message of a batch."""
    (count,) = struct.unpack_from(">I", batch)
    at = 4 + 9 * count
    verdicts = bytearray(count)
    for number in range(count):
        sizes = struct.unpack_from(">IIB", batch, 4 + 9 * number)
        text = batch[at : at + sizes[0]].decode("utf-8", "replace")
        body = batch[at + sizes[0] : at + sizes[0] + sizes[1]]
        at += sizes[0] + sizes[1]
        properties = {}
        for pair in text.split("\x02"):
            name, _, value = pair.partition("\x01")
            if name and value:
                properties[name] = value
        verdicts[number] = bool(matches(properties, unpacked(body, sizes[2])))
    return bytes(verdicts)


def unpacked(body: bytes, compression: int) -> bytes:
    """A body as its producer wrote it; kinds are those of the system flag: LZ4, ZSTD, ZLIB."""
    if compression == 0:
        return body
    if compression == 1:
        whole: bytes = _lz4.LZ4FrameDecompressor().decompress(body, BODY_BYTES_MAX + 1)
    elif compression == 2:
        whole = _zstd.ZstdDecompressor().decompress(body, max_output_size=BODY_BYTES_MAX + 1)
    else:
        whole = zlib.decompressobj().decompress(body, BODY_BYTES_MAX + 1)
    if len(whole) > BODY_BYTES_MAX:
        raise ValueError(f"a body is longer than {BODY_BYTES_MAX} bytes when it is unpacked")
    return whole


def described(error: BaseException) -> str:
    """One line: what it was, what it said, and where in the filter."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "filter":
            line = trace.tb_lineno
        trace = trace.tb_next
    place = "" if line is None else f" (line {line})"
    return text[:ERROR_CHARS_MAX] + place


# --- the conversation -----------------------------------------------------------------------


def read_exactly(descriptor: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            os._exit(0)  # the broker does not need us any more
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame(descriptor: int) -> bytes:
    length = int.from_bytes(read_exactly(descriptor, 4), "big")
    if length > FRAME_BYTES_MAX:
        os._exit(2)
    return read_exactly(descriptor, length)


def write_frame(descriptor: int, kind: int, content: bytes) -> None:
    raw = memoryview(struct.pack(">IB", len(content) + 1, kind) + content)
    while raw:
        raw = raw[os.write(descriptor, raw) :]


def optional(name: str) -> Any:  # noqa: ANN401
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_lz4: Any = None
_zstd: Any = None


def main(descriptor: int, memory_bytes: int, cpu_seconds: int) -> None:
    global _lz4, _zstd
    _lz4, _zstd = optional("lz4.frame"), optional("zstandard")
    for name in (*MODULES, *LOADED_BY_THOSE):
        importlib.import_module(name)
    os.chdir("/")
    source = read_frame(descriptor).decode("utf-8", "replace")
    try:
        limit_resources(memory_bytes, cpu_seconds)
        close_the_door()
        matches = load_filter(source)
    except BaseException as error:
        write_frame(descriptor, 1, described(error).encode("utf-8", "replace"))
        os._exit(1)
    write_frame(descriptor, 0, b"")
    while True:
        batch = read_frame(descriptor)
        try:
            write_frame(descriptor, 0, judge(matches, batch))
        except BaseException as error:
            write_frame(descriptor, 1, described(error).encode("utf-8", "replace"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
