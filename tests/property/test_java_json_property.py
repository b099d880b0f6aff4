import json
import string
from contextlib import suppress

import msgspec
from hypothesis import assume, example, given
from hypothesis import strategies as st

from firearrow.base.errors import PeerProtocolError
from firearrow.model.topic import MessageQueue
from firearrow.wire.bodies import (
    ClusterInfo,
    ConsumerOffsetWrapper,
    HeartbeatData,
    ResetOffsetBody,
    TopicStatsTable,
    decode_batch_ack,
    decode_register_body,
    decode_reset_offset,
    encode_reset_offset,
)
from firearrow.wire.java_json import JavaJsonError, ObjectMap, decode, encode, parse
from firearrow.wire.json_reader import PatientReader, quote_keys
from firearrow.wire.properties_text import (
    PropertiesTextError,
    format_properties,
    parse_properties,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text()  # Hypothesis leaves lone surrogates out
SCALARS = st.booleans() | INT64 | FLOATS | TEXT
# Members that are null are left out when written, so they cannot come back.
VALUES = st.recursive(
    st.none() | SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(TEXT, inner.filter(lambda value: value is not None), max_size=5)
    ),
    max_leaves=30,
).filter(lambda value: "$ref" not in repr(value))
QUEUES = st.builds(MessageQueue, topic=TEXT, broker_name=TEXT, queue_id=INT32)

HEARTBEAT = (
    b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    b'"consumeType":"CONSUME_PASSIVELY","groupName":"CG1","messageModel":"CLUSTERING",'
    b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],"subString":"TagA",'
    b'"subVersion":1700000000001,"tagsSet":["TagA"],"topic":"T"}],"unitMode":false}],'
    b'"producerDataSet":[{"$ref":"$.consumerDataSet[0]"}],"withoutSub":false}'
)
STATS = (
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":10,"minOffset":0},'
    b'{"brokerName":"b","queueId":1,"topic":"T"}:{"$ref":"$.x"}},"topicPutTps":0.0,'
    b"'x':{1:2,y:NaN,}}"
)


@given(VALUES)
def test_what_we_write_reads_back_the_same(value: object) -> None:
    assert parse(encode(value)) == value


@given(VALUES)
def test_what_we_write_without_special_keys_is_standard_json(value: object) -> None:
    assert json.loads(encode(value)) == value


@given(VALUES)
def test_lenient_reader_agrees_with_the_strict_one(value: object) -> None:
    standard = encode(value)
    lenient = b"{bare:" + standard + b",}"
    assert parse(lenient) == {"bare": parse(standard)}


@given(st.dictionaries(INT64, SCALARS, max_size=10))
def test_integer_keys_read_the_same_bare_and_quoted(table: dict[int, object]) -> None:
    expected = {str(key): value for key, value in table.items()}
    assert "$ref" in repr(table) or parse(encode(table)) == expected
    assert "$ref" in repr(table) or parse(encode(table, bare_int_keys=True)) == expected


@given(st.dictionaries(QUEUES, INT64, max_size=10))
def test_maps_with_queues_as_keys_read_back_the_same(table: dict[MessageQueue, int]) -> None:
    body = ResetOffsetBody(offset_table=ObjectMap(table))
    assume(b"$ref" not in encode(body))
    assert decode(encode(body), ResetOffsetBody) == body
    assert decode_reset_offset(encode_reset_offset(body)) == body
    assert decode_reset_offset(encode_reset_offset(body, as_list=True)) == body


@given(st.dictionaries(TEXT, st.dictionaries(INT32, INT64, max_size=3), max_size=5))
def test_offset_tables_read_back_the_same_in_both_key_styles(
    table: dict[str, dict[int, int]],
) -> None:
    wrapper = ConsumerOffsetWrapper(offset_table=table)
    assert decode(encode(wrapper), ConsumerOffsetWrapper) == wrapper
    assert decode(encode(wrapper, bare_int_keys=True), ConsumerOffsetWrapper) == wrapper


@given(FLOATS)
def test_float_keeps_its_value_in_javas_spelling(value: float) -> None:
    assert float(encode(value)) == value


def refuses_or_reads(data: bytes | str) -> None:
    """Whatever came, the outcome is a value or the error that blames the peer."""
    with suppress(JavaJsonError):
        encode(parse(data))
    for kind in (HeartbeatData, TopicStatsTable, ClusterInfo, tuple[dict[str, object], ...]):
        with suppress(JavaJsonError):
            encode(decode(data, kind))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    refuses_or_reads(data)


@given(st.text(alphabet="{}[]:,\"'\\$ref.@0-1.5eEuxNaN\n truefalsn\ud800", max_size=60))
def test_any_text_of_json_pieces_is_read_or_refused(text: str) -> None:
    refuses_or_reads(text)


@given(st.text(alphabet="{}[]:,\"'\\ \n-01a_$", max_size=40))
@example('{0:1,a:{-1:"{b:2,c:3"}, d :[1,e]}')
@example('{"a\\\\":1,b:2}')
def test_quick_reader_of_bare_keys_agrees_with_the_patient_one(text: str) -> None:
    try:
        quick: object = msgspec.json.decode(quote_keys(text.encode()))
    except msgspec.MsgspecError:
        return
    assert PatientReader(text).document() == quick


@given(
    st.sampled_from([HEARTBEAT, STATS]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 5), st.binary(max_size=3)), max_size=4),
)
def test_damaged_bodies_are_read_or_refused(
    body: bytes, damages: list[tuple[int, int, bytes]]
) -> None:
    for at, removed, inserted in damages:
        body = body[:at] + inserted + body[at + removed :]
    refuses_or_reads(body)


@given(st.sampled_from([HEARTBEAT, STATS]), st.integers(0, 400))
def test_body_cut_short_is_refused(body: bytes, cut: int) -> None:
    if cut < len(body):
        try:
            parse(body[:cut])
        except JavaJsonError:
            return
        raise AssertionError("half a document was taken for a whole one")


@given(st.binary(max_size=200), st.booleans(), st.sampled_from([0, 409, 479]))
def test_any_registration_is_read_or_refused(data: bytes, compressed: bool, version: int) -> None:
    with suppress(PeerProtocolError):
        decode_register_body(data, compressed=compressed, version=version)


@given(st.binary(max_size=200))
def test_any_acknowledgement_and_reset_is_read_or_refused(data: bytes) -> None:
    for read in (decode_batch_ack, decode_reset_offset):
        with suppress(JavaJsonError):
            read(data)


@given(st.dictionaries(TEXT, TEXT, max_size=8))
def test_properties_text_reads_back_the_same(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


@given(st.text(alphabet="\\=: \t\f\r\n#!u0aé" + string.hexdigits, max_size=60))
def test_any_properties_text_is_read_or_refused(text: str) -> None:
    try:
        properties = parse_properties(text)
    except PropertiesTextError:
        return
    assert parse_properties(format_properties(properties)) == properties
