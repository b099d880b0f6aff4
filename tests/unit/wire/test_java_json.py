import math
from enum import IntFlag, StrEnum

import msgspec
import pytest

from firearrow.base.errors import PeerProtocolError
from firearrow.model.group import ConsumeType, MessageModel
from firearrow.model.topic import MessageQueue
from firearrow.wire.java_json import (
    DEPTH_MAX,
    JavaJsonError,
    ObjectMap,
    convert,
    decode,
    encode,
    parse,
)
from firearrow.wire.json_reader import DIALECT_BYTES_MAX

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=3)
QUEUE_TEXT = '{"brokerName":"b","queueId":3,"topic":"T"}'


class Inner(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    some_name: str = "default"
    count: int = 7


class Outer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    rate: float = 0.0
    on: bool = False
    model: MessageModel = MessageModel.CLUSTERING
    names: tuple[str, ...] = ()
    inners: tuple[Inner, ...] = ()
    by_id: dict[int, str] = {}
    by_name: dict[str, Inner] = {}
    by_queue: ObjectMap[MessageQueue, int] = msgspec.field(default_factory=ObjectMap)
    maybe: Inner | None = None
    raw: bytes = b""


# --- parse ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":[1,-2,3.5,true,false,null,"x"]}', {"a": [1, -2, 3.5, True, False, None, "x"]}),
        ("{a:1,b_2:2,$c:3}", {"a": 1, "b_2": 2, "$c": 3}),
        ("{'a':'it''s'}".replace("''", "\\'"), {"a": "it's"}),
        ("{0:1,-3:4}", {"0": 1, "-3": 4}),
        ('{0:"addr",1:"other"}', {"0": "addr", "1": "other"}),
        ("{null:1,true:2}", {"null": 1, "true": 2}),
        ("[1,2,]", [1, 2]),
        ('{"a":1,}', {"a": 1}),
        ("{}", {}),
        ("{ }", {}),
        ("[ ]", []),
        ('{"a":NaN,"b":undefined}', {"a": None, "b": None}),
        ('[01,"\\x41\\v\\0\\/"]', [1, "A\v\0/"]),
        (" \t\r\n\f\b{a : 1 , b : [ ] } ", {"a": 1, "b": []}),
        ("\ufeff{a:1}", {"a": 1}),
        ('{a:1,"u":"\\u4e2d\\ud83d\\ude00"}', {"a": 1, "u": "中😀"}),
        ("{a:1.5e3,b:-2E-2}", {"a": 1500.0, "b": -0.02}),
        ('{a:"line\nbreak"}', {"a": "line\nbreak"}),
    ],
)
def test_dialect_is_read_as_fastjson_reads_it(text: str, value: object) -> None:
    """Each of these was given to fastjson 1.2.83, with the same result."""
    assert parse(text) == value
    assert parse(text.encode()) == value


def test_object_as_key_becomes_its_source_text() -> None:
    assert parse(f'{{"t":{{{QUEUE_TEXT}:7}}}}') == {"t": {QUEUE_TEXT: 7}}


def test_lone_surrogate_is_replaced_because_utf8_cannot_hold_it() -> None:
    assert parse('["\\ud800x"]') == ["�x"]
    assert parse('{a:"\ud800"}') == {"a": "?"}


def test_broken_utf8_is_replaced_as_in_java() -> None:
    assert parse(b'{"a":"\xff"}') == {"a": "�"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "a value is missing at character 0"),
        ("{a:1", "',' or '}' is missing at character 4"),
        ('{"a" 1}', "':' is missing at character 5"),
        ("{a:1}x", "text after the end of the document at character 5"),
        ("{a:}", "a value is missing at character 3"),
        ("{,}", "a key is missing at character 1"),
        ("[1 2]", "',' or ']' is missing at character 3"),
        ('["abc', "the text ends inside a string at character 5"),
        ('["\\q"]', "an escape is unknown at character 2"),
        ('["\\u12"]', "an escape lacks hex digits at character 2"),
        ("[truth]", "a value is missing at character 1"),
        ("{a:1e999}", "a number is out of range at character 3"),
        ("[" + "9" * 500 + "]x", "a number is too long at character 1"),
    ],
)
def test_malformed_text_is_refused_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(JavaJsonError) as caught:
        parse(text)
    assert str(caught.value) == complaint


def test_refusal_is_the_peers_fault() -> None:
    with pytest.raises(PeerProtocolError):
        parse("{")


def test_brackets_inside_text_are_no_nesting() -> None:
    texts = ["[" * DEPTH_MAX, '\\"{' * DEPTH_MAX]
    assert parse(encode(texts)) == texts
    assert parse(b"{0:" + encode(texts) + b"}") == {"0": texts}


def test_wide_document_is_not_taken_for_a_deep_one() -> None:
    wide: list[list[object]] = [[{}, []] for _ in range(2 * DEPTH_MAX)]
    assert parse(encode(wide)) == wide


def test_large_document_may_have_bare_keys_and_no_other_liberty() -> None:
    table = {str(key): "x" * 1_000 for key in range(DIALECT_BYTES_MAX // 1_000)}
    large = b"{" + b",".join(b'%s:"%s"' % (k.encode(), v.encode()) for k, v in table.items())
    assert parse(large + b"}") == table
    with pytest.raises(JavaJsonError, match="not standard JSON; the limit is 1048576"):
        parse(large + b",}")


@pytest.mark.parametrize("opening", ["[", '{"a":', "{a:", "{"])
def test_nesting_is_limited_whether_strict_or_lenient(opening: str) -> None:
    closing = {"[": "]"}.get(opening, "}")
    if opening != "{":
        legal = opening * DEPTH_MAX + "1" + closing * DEPTH_MAX
        assert parse(legal)
        with pytest.raises(JavaJsonError, match="nested deeper than 64 levels"):
            parse(f"{opening}{legal}{closing}")
    with pytest.raises(JavaJsonError):
        parse(opening * 100_000)


@pytest.mark.parametrize(
    "hostile",
    [
        "[" + "1," * 400_000,
        '["' + "\\q" * 400_000,
        "['" + "a" * 800_000,
        "[" + "'a'," * 300_000,
        "{" + "a:1," * 300_000 + "!",
        "[" + "-" * 800_000,
        "[" + "a" * 800_000,
        " " * 800_000 + "!",
        "{" + '{"a":1}:1,' * 100_000,
        '{a:"' + "\\'" * 400_000,
    ],
)
@pytest.mark.timeout(20)
def test_long_hostile_text_is_refused_in_linear_time(hostile: str) -> None:
    """A reader that looks at the rest of the text again for each token would take hours."""
    with pytest.raises(JavaJsonError):
        parse(hostile)


# --- references -------------------------------------------------------------------------------


def test_references_of_fastjson_are_resolved() -> None:
    """Text written by fastjson 1.2.83, which escapes punctuation in names."""
    text = (
        r'{"again":{"k":"v"},"ints":{3:{"i":1}},"list":[{"$ref":"$.again"},1],'
        r'"map":{"broker-a.b":{"q":"w"}},"self":{"$ref":"@"},'
        r'"x1":{"$ref":"$.map.broker\\-a\\.b"},"x2":{"$ref":"$.ints[3]"},'
        r'"x5":[{"$ref":"$.again"},{"$ref":"$.list[0]"}]}'
    )
    value = parse(text)
    assert isinstance(value, dict)
    assert value["list"] == [{"k": "v"}, 1]
    assert value["x1"] == {"q": "w"}
    assert value["x2"] == {"i": 1}
    assert value["x5"] == [{"k": "v"}, {"k": "v"}]
    assert value["self"] is None


@pytest.mark.parametrize(
    "path", ["$", "..", "@", "$.b", "$.a.c", "$.a[0]", "$.later", "$.a.", "x", "", "$[99999999999]"]
)
def test_reference_to_nothing_or_to_what_encloses_it_is_null(path: str) -> None:
    text = f'{{"a":{{"n":1}},"b":{{"$ref":"{path}"}},"later":{{}}}}'
    assert parse(text) == {"a": {"n": 1}, "b": None, "later": {}}


def test_quoted_names_in_a_path_are_read() -> None:
    assert parse('{"a":{"x y":[0]},"b":{"$ref":"$.a[\'x y\']"}}') == {
        "a": {"x y": [0]},
        "b": [0],
    }


def test_typed_value_sees_through_references() -> None:
    text = '{"name":"n","inners":[{"someName":"x","count":1},{"$ref":"$.inners[0]"}]}'
    outer = decode(text, Outer)
    assert outer.inners == (Inner(some_name="x", count=1),) * 2


def test_references_cannot_blow_a_small_body_up() -> None:
    targets = ",".join(["1"] * 2_000)
    references = ",".join(['{"$ref":"$.a"}'] * 2_000)
    with pytest.raises(JavaJsonError, match="repeat too much"):
        parse(f'{{"a":[{targets}],"b":[{references}]}}')


def test_references_cannot_pile_levels_on_levels() -> None:
    chain = ",".join(f'"a{i + 1}":[{{"$ref":"$.a{i}"}}]' for i in range(70))
    with pytest.raises(JavaJsonError, match="nested deeper than 64 levels"):
        parse(f'{{"a0":[],{chain}}}')
    assert parse('{"a0":[],"a1":[{"$ref":"$.a0"}],"a2":[{"$ref":"$.a1"}]}') == {
        "a0": [],
        "a1": [[]],
        "a2": [[[]]],
    }


def test_key_named_ref_beside_others_is_an_ordinary_key() -> None:
    assert parse('{"a":{},"b":{"$ref":"$.a","c":1}}') == {"a": {}, "b": {"$ref": "$.a", "c": 1}}


# --- typed ------------------------------------------------------------------------------------


def test_missing_and_null_members_have_their_defaults() -> None:
    nulls = (
        '{"name":"n","rate":null,"on":null,"model":null,"names":null,"inners":null,"byId":null,'
        '"byName":null,"byQueue":null,"maybe":null,"raw":null,"unknown":[1]}'
    )
    assert decode(nulls, Outer) == Outer(name="n") == decode('{"name":"n"}', Outer)


def test_numbers_are_read_from_text_and_text_from_numbers() -> None:
    outer = decode(
        '{"name":5,"rate":"1.5","on":"true","names":[1,true,2.0],"inners":[{"count":"9"}],'
        '"byId":{"0":12}}',
        Outer,
    )
    assert outer == Outer(
        name="5",
        rate=1.5,
        on=True,
        names=("1", "true", "2.0"),
        inners=(Inner(count=9),),
        by_id={0: "12"},
    )


def test_empty_text_for_a_number_and_booleans_for_counts_are_taken_as_fastjson_does() -> None:
    assert decode('{"count":"","someName":null}', Inner) == Inner()
    assert decode('{"count":true}', Inner).count == 1


@pytest.mark.parametrize("text", ['"CONSUME_POP"', "2", '"2"'])
def test_enum_is_read_by_name_or_ordinal(text: str) -> None:
    assert decode(text, ConsumeType) is ConsumeType.CONSUME_POP


@pytest.mark.parametrize("text", ['"CONSUME_NEVER"', "3", "-1", "[]"])
def test_unknown_enum_member_is_refused(text: str) -> None:
    with pytest.raises(JavaJsonError, match="ConsumeType"):
        decode(text, ConsumeType)


def test_null_elements_are_dropped_where_null_means_nothing() -> None:
    outer = decode('{"name":"n","names":["a",null],"byName":{"x":null,"y":{}}}', Outer)
    assert (outer.names, outer.by_name) == (("a",), {"y": Inner()})


@pytest.mark.parametrize(
    "text",
    [
        f'{{"name":"n","byQueue":{{{QUEUE_TEXT}:5}}}}',
        '{name:"n",byQueue:{{topic:"T",queueId:"3",brokerName:"b"}:"5"}}',
        '{"name":"n","byQueue":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":3,\\"topic\\":\\"T\\"}":5}}',
    ],
)
def test_map_with_objects_as_keys_is_read_bare_or_packed_in_text(text: str) -> None:
    outer = decode(text, Outer)
    assert outer.by_queue == {QUEUE: 5}
    assert isinstance(outer.by_queue, ObjectMap)


def test_map_with_objects_as_keys_skips_null_values() -> None:
    assert decode(f'{{"name":"n","byQueue":{{{QUEUE_TEXT}:null}}}}', Outer).by_queue == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"rate":1}', "Outer: Object missing required field `name`"),
        ('{"name":"n","inners":[{"count":"x"}]}', r"Outer: .*int.*\$\.inners\[0\]\.count"),
        ('{"name":"n","byQueue":[1]}', "Outer: Expected `object`, got `list`"),
        ('{"name":"n","byQueue":{"no":1}}', "a value is missing at character 0"),
        ('{"name":"n","byQueue":{{"topic":"T"}:1}}', "MessageQueue: .*brokerName"),
        ('{"name":{}}', "Outer: Expected `str`, got `object`"),
        ("[]", "Outer: Expected `object`, got `array`"),
        ("null", "Outer: Expected `object`, got `null`"),
    ],
)
def test_wrong_shape_is_refused_with_a_readable_reason(text: str, complaint: str) -> None:
    with pytest.raises(JavaJsonError, match=complaint):
        decode(text, Outer)


def test_list_type_can_be_decoded_and_named_in_errors() -> None:
    assert decode('[{"count":1}]', tuple[Inner, ...]) == (Inner(count=1),)
    with pytest.raises(JavaJsonError, match="tuple"):
        decode("{}", tuple[Inner, ...])


def test_object_typed_member_keeps_whatever_came() -> None:
    assert convert({"a": {"b": [1, None]}}, dict[str, object]) == {"a": {"b": [1, None]}}


def test_object_typed_member_is_refused_when_nested_too_deeply() -> None:
    deep = "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)
    with pytest.raises(JavaJsonError, match="nested deeper than 64 levels"):
        decode(f'{{"a":{deep}}}', dict[str, object])


# --- encode -----------------------------------------------------------------------------------


class Mode(StrEnum):
    FAST = "the fast one"


class Bits(IntFlag):
    LOW = 1
    HIGH = 4


def test_struct_is_written_compact_with_sorted_keys_and_without_absent_members() -> None:
    outer = Outer(name="n", inners=(Inner(),), by_id={1: "x"}, by_queue=ObjectMap({QUEUE: 5}))
    assert encode(outer) == (
        b'{"byId":{"1":"x"},"byName":{},'
        b'"byQueue":{{"brokerName":"b","queueId":3,"topic":"T"}:5},'
        b'"inners":[{"count":7,"someName":"default"}],"model":"CLUSTERING","name":"n","names":[],'
        b'"on":false,"rate":0.0,"raw":""}'
    )


def test_integer_keys_are_bare_only_on_request() -> None:
    assert encode({0: "a", -1: "b"}) == b'{"0":"a","-1":"b"}'
    assert encode({0: "a", -1: "b"}, bare_int_keys=True) == b'{0:"a",-1:"b"}'


def test_capital_letters_sort_before_small_ones_as_in_java() -> None:
    class Names(msgspec.Struct, rename={"second": "username", "first": "userType"}):
        second: int = 2
        first: int = 1

    assert encode(Names()) == b'{"userType":1,"username":2}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (1e-3, "0.001"),
        (9.99e-4, "9.99E-4"),
        (1.5e10, "1.5E10"),
        (123456789.125, "1.23456789125E8"),
        (1e21, "1.0E21"),
        (-2.5e-7, "-2.5E-7"),
        (1e16, "1.0E16"),
        (12345678.9, "1.23456789E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, "null"),
        (math.inf, "null"),
    ],
)
def test_float_is_written_as_java_writes_it(value: float, text: str) -> None:
    """Expected texts were printed by fastjson 1.2.83 on Java 17."""
    assert encode(value) == text.encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (12, "12"),
        (Mode.FAST, '"FAST"'),
        (Bits.LOW | Bits.HIGH, "5"),
        ({Mode.FAST: 1}, '{"FAST":1}'),
        (b"\x03", '"Aw=="'),
        ('é中"\\/\n\x01', '"é中\\"\\\\/\\n\\u0001"'),
        ([], "[]"),
        ({}, "{}"),
        ({"a": None, "b": [1, None]}, '{"b":[1,null]}'),
        ((1, (2,)), "[1,[2]]"),
    ],
)
def test_value_is_written_as_java_writes_it(value: object, text: str) -> None:
    assert encode(value) == text.encode()


def test_same_object_twice_is_written_twice_and_never_as_a_reference() -> None:
    inner = {"a": 1}
    assert encode([inner, inner]) == b'[{"a":1},{"a":1}]'


@pytest.mark.parametrize("value", [{1, 2}, object(), {(1, 2): 3}, {True: 1}, {1.5: 1}])
def test_value_without_a_json_form_is_our_mistake(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value)


def test_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contains itself"):
        encode(loop)
