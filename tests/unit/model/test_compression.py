from __future__ import annotations

import importlib
import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from firearrow.model.compression import (
    Compression,
    CompressionError,
    compression_of,
    pack,
    unpack,
    with_compression,
)

if TYPE_CHECKING:
    from types import ModuleType

TEXT = b"a body that is worth packing " * 40
PACKED = {
    "zlib": zlib.compress(TEXT),
    "lz4": lz4.frame.compress(TEXT),
    "zstd": zstandard.ZstdCompressor().compress(TEXT),
}


@given(st.sampled_from(Compression), st.binary(max_size=3000), st.integers(1, 9))
def test_what_is_packed_unpacks_to_the_same(
    compression: Compression, body: bytes, level: int
) -> None:
    assert unpack(pack(body, compression, level), compression) == body


@pytest.mark.parametrize("compression", Compression)
def test_packing_makes_a_body_that_repeats_itself_smaller(compression: Compression) -> None:
    assert len(pack(TEXT, compression)) < len(TEXT) // 4


@pytest.mark.parametrize("kind", PACKED)
def test_what_others_packed_is_unpacked(kind: str) -> None:
    assert unpack(PACKED[kind], kind) == TEXT


def test_lz4_blocks_stand_alone_since_java_reads_no_others() -> None:
    packed = pack(bytes(range(256)) * 2000, Compression.LZ4)
    magic, flags = struct.unpack_from("<IB", packed)
    assert magic == 0x184D2204
    assert flags & 0x20, "block independence"
    assert not flags & 0x01, "no dictionary"


def test_a_higher_level_is_obeyed() -> None:
    body = b"".join(str(number * number).encode() for number in range(3000))
    assert pack(body, Compression.ZLIB, 9) == zlib.compress(body, 9)
    assert pack(body, Compression.ZLIB, 1) == zlib.compress(body, 1)
    assert len(pack(body, Compression.ZSTD, 19)) < len(pack(body, Compression.ZSTD, 1))


@pytest.mark.parametrize("compression", [Compression.ZLIB, Compression.ZSTD])
def test_a_level_that_does_not_exist_is_refused(compression: Compression) -> None:
    with pytest.raises(CompressionError, match=f"{compression} at level 99: "):
        pack(TEXT, compression, 99)


@pytest.mark.parametrize("kind", PACKED)
def test_a_body_that_unpacks_beyond_the_limit_is_refused(kind: str) -> None:
    assert unpack(PACKED[kind], kind, bytes_max=len(TEXT)) == TEXT
    with pytest.raises(CompressionError, match=f"longer than {len(TEXT) - 1} bytes"):
        unpack(PACKED[kind], kind, bytes_max=len(TEXT) - 1)


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("cut", [1, 9, 30])
def test_a_body_cut_short_is_refused(kind: str, cut: int) -> None:
    with pytest.raises(CompressionError, match=kind):
        unpack(PACKED[kind][:-cut], kind)


@given(st.sampled_from(list(PACKED)), st.binary(max_size=200))
def test_any_bytes_are_unpacked_or_refused(kind: str, body: bytes) -> None:
    with suppress(CompressionError):  # and nothing else
        assert len(unpack(body, kind, bytes_max=1 << 20)) <= 1 << 20


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(CompressionError, match="unknown compression"):
        unpack(b"?", "unknown")


@pytest.mark.parametrize(("kind", "package"), [("lz4", "lz4"), ("zstd", "zstandard")])
def test_a_missing_package_is_named_with_how_to_get_it(
    kind: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def without_it(name: str, *more: Any) -> ModuleType:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(name)
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without_it)
    with pytest.raises(CompressionError, match=f"pip install {package}$"):
        unpack(b"", kind)
    with pytest.raises(CompressionError, match=f"pip install {package}$"):
        pack(b"", Compression(kind))


@pytest.mark.parametrize(
    ("sys_flag", "compression"),
    [
        (0x000, None),
        (0x300, None),
        (0x001, "zlib"),  # producers before 4.9.4
        (0x101, "lz4"),
        (0x201, "zstd"),
        (0x301, "zlib"),
        (0x401, "unknown"),
        (0x701, "unknown"),
        (0x301 | 0xC | 0x80, "zlib"),
    ],
)
def test_the_system_flag_says_how_a_body_is_packed(sys_flag: int, compression: str | None) -> None:
    assert compression_of(sys_flag) == compression


def test_flags_are_written_as_rocketmq_writes_them() -> None:
    assert with_compression(0, Compression.ZLIB) == 0x301
    assert with_compression(0, Compression.LZ4) == 0x101
    assert with_compression(0, Compression.ZSTD) == 0x201


@given(st.integers(0, 0xFFFF), st.sampled_from([None, *Compression]))
def test_other_bits_of_the_flag_stay_as_they_are(
    sys_flag: int, compression: Compression | None
) -> None:
    written = with_compression(sys_flag, compression)
    assert compression_of(written) == compression
    assert written & ~0x701 == sys_flag & ~0x701
    assert with_compression(written, None) == sys_flag & ~0x701
