"""The body with which a broker registers, in its plain and its compressed form."""

import struct
import zlib
from typing import Final

import msgspec

from firearrow.base.errors import PeerProtocolError
from firearrow.model.topic import DataVersion, TopicConfig, TopicFilterType
from firearrow.wire import java_json
from firearrow.wire.bodies.nameserver import TopicQueueMappingInfo
from firearrow.wire.codes import VERSION_3_0_11, VERSION_5_0_0, VERSION_OURS

# What an uncompressed registration can hold, a frame being what it is. A compressed one with more
# is a bomb: each topic costs us microseconds, and its sender a few bytes.
INFLATED_BYTES_MAX: Final = 16 * 1024 * 1024
TOPICS_MAX: Final = 100_000
_LENGTH: Final = struct.Struct(">i")
_COMPRESSION_LEVEL: Final = 9


class TopicConfigSerializeWrapper(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All topics of a broker. The three fields on static topics are absent from 4.x."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = {}
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: dict[str, object] | None = None
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None


class RegisterBrokerBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = TopicConfigSerializeWrapper()
    filter_server_list: tuple[str, ...] = ()


def decode_register_body(body: bytes, *, compressed: bool, version: int) -> RegisterBrokerBody:
    """Read what a broker of this version sent; nothing at all is an empty table."""
    if not body:
        return RegisterBrokerBody()
    if version < VERSION_3_0_11:
        wrapper = java_json.decode(body, TopicConfigSerializeWrapper)
        return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    if compressed:
        return _decode_compressed(body, version)
    return java_json.decode(body, RegisterBrokerBody)


def encode_register_body(
    body: RegisterBrokerBody, *, compressed: bool = False, version: int = VERSION_OURS
) -> bytes:
    """Write it for a name server; `version` is the one that our request will carry."""
    return _encode_compressed(body, version) if compressed else java_json.encode(body)


# The compressed form, a zlib stream of length-prefixed texts:
#
#   | data version | count   | topic line, count times | filter servers | count   | mapping ... |
#   | JSON         | 4 bytes | name r w perm type attr | JSON           | 4 bytes | JSON        |
#
# The mappings are there from 5.0 on. Order and system flag of a topic get lost.
def _decode_compressed(body: bytes, version: int) -> RegisterBrokerBody:
    fields = _Fields(_inflate(body))
    data_version = java_json.decode(fields.text(), DataVersion)
    topics = [_parse_topic_line(fields.text()) for _ in range(fields.entries())]
    filter_servers = java_json.decode(fields.text(), tuple[str, ...])
    mappings: list[TopicQueueMappingInfo] = []
    if version >= VERSION_5_0_0:
        mappings = [
            java_json.decode(fields.text(), TopicQueueMappingInfo) for _ in range(fields.entries())
        ]
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=data_version,
            topic_config_table={topic.topic_name: topic for topic in topics},
            topic_queue_mapping_info_map=(
                {mapping.topic: mapping for mapping in mappings}
                if version >= VERSION_5_0_0
                else None
            ),
        ),
        filter_server_list=filter_servers,
    )


def _encode_compressed(body: RegisterBrokerBody, version: int) -> bytes:
    wrapper = body.topic_config_serialize_wrapper
    topics = [_topic_line(topic) for topic in wrapper.topic_config_table.values()]
    parts = [
        _prefixed(java_json.encode(wrapper.data_version)),
        _LENGTH.pack(len(topics)),
        *map(_prefixed, topics),
        _prefixed(java_json.encode(body.filter_server_list)),
    ]
    if version >= VERSION_5_0_0:
        mappings = wrapper.topic_queue_mapping_info_map or {}
        parts.append(_LENGTH.pack(len(mappings)))
        parts.extend(
            _prefixed(java_json.encode(mapping, bare_int_keys=True))
            for mapping in mappings.values()
        )
    return zlib.compress(b"".join(parts), _COMPRESSION_LEVEL)


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise PeerProtocolError(f"compressed registration: {error}") from None
    if inflater.unconsumed_tail:
        raise PeerProtocolError(
            f"compressed registration: more than {INFLATED_BYTES_MAX} bytes when inflated"
        )
    if not inflater.eof:
        raise PeerProtocolError("compressed registration: the stream ends too early")
    return data


class _Fields:
    """Takes one field after the other off the inflated body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        if len(self._data) - self._at < _LENGTH.size:
            raise PeerProtocolError("compressed registration: a length is missing")
        (count,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += _LENGTH.size
        if not 0 <= count <= len(self._data) - self._at:
            raise PeerProtocolError(f"compressed registration: a length of {count}")
        return int(count)

    def entries(self) -> int:
        count = self.count()
        if count > TOPICS_MAX:
            raise PeerProtocolError(
                f"compressed registration: {count} topics; the limit is {TOPICS_MAX}"
            )
        return count

    def text(self) -> bytes:
        size = self.count()
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]


def _prefixed(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text


def _topic_line(topic: TopicConfig) -> bytes:
    head = (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type.name} "
    )
    return head.encode() + java_json.encode(topic.attributes)


def _parse_topic_line(line: bytes) -> TopicConfig:
    parts = line.decode("utf-8", "replace").split(" ", 5)
    if len(parts) < 5:
        raise PeerProtocolError(f"compressed registration: topic line {line[:80]!r}")
    name, read_queues, write_queues, perm, filter_type, *attributes = parts
    fields: dict[str, object] = {
        "topicName": name,
        "readQueueNums": read_queues,
        "writeQueueNums": write_queues,
        "perm": perm,
        "topicFilterType": filter_type or TopicFilterType.SINGLE_TAG,
    }
    if attributes and attributes[0]:
        fields["attributes"] = java_json.parse(attributes[0])
    return java_json.convert(fields, TopicConfig)
