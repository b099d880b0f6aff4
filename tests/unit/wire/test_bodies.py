import struct
import zlib

import pytest

from firearrow.base.errors import PeerProtocolError
from firearrow.model.group import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    MessageRequestMode,
    SubscriptionGroupConfig,
)
from firearrow.model.topic import (
    BrokerData,
    DataVersion,
    MessageQueue,
    QueueData,
    TopicConfig,
    TopicFilterType,
)
from firearrow.wire.bodies import (
    INFLATED_BYTES_MAX,
    AclInfo,
    BatchAck,
    BatchAckBody,
    BrokerStatsData,
    ClusterInfo,
    ConsumerOffsetWrapper,
    ConsumeStats,
    DelayOffsetWrapper,
    HARuntimeInfo,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    OffsetWrapper,
    QueryAssignmentResponseBody,
    RegisterBrokerBody,
    ResetOffsetBody,
    TimerCheckpoint,
    TopicConfigSerializeWrapper,
    TopicOffset,
    TopicQueueMappingInfo,
    TopicRouteData,
    TopicStatsTable,
    UserInfo,
    decode_batch_ack,
    decode_register_body,
    decode_reset_offset,
    decode_timer_checkpoint,
    encode_register_body,
    encode_reset_offset,
    encode_timer_checkpoint,
)
from firearrow.wire.bodies.registration import TOPICS_MAX
from firearrow.wire.codes import VERSION_OURS
from firearrow.wire.java_json import JavaJsonError, ObjectMap, decode, encode
from firearrow.wire.properties_text import (
    PropertiesTextError,
    format_properties,
    parse_properties,
)

QUEUE = MessageQueue(topic="TopicTest", broker_name="broker-a", queue_id=0)

# --- routes -----------------------------------------------------------------------------------


def test_route_is_written_as_java_writes_its_standard_form() -> None:
    route = TopicRouteData(
        queue_datas=(
            QueueData(broker_name="broker-a", read_queue_nums=8, write_queue_nums=8, perm=6),
        ),
        broker_datas=(
            BrokerData(
                cluster="DefaultCluster",
                broker_name="broker-a",
                broker_addrs={0: "192.168.1.10:10911", 1: "192.168.1.11:10911"},
            ),
        ),
    )
    assert encode(route) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"192.168.1.10:10911","1":"192.168.1.11:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
        b'"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,'
        b'"writeQueueNums":8}]}'
    )


@pytest.mark.parametrize("key", ["0", '"0"'])
def test_cluster_info_is_read_with_bare_and_with_quoted_broker_ids(key: str) -> None:
    info = decode(
        f'{{"brokerAddrTable":{{"a":{{"brokerAddrs":{{{key}:"h:1"}},"brokerName":"a",'
        f'"cluster":"c"}}}},"clusterAddrTable":{{"c":["a"]}}}}',
        ClusterInfo,
    )
    assert info.broker_addr_table["a"].master_addr == "h:1"
    assert info.cluster_addr_table == {"c": ("a",)}


# --- registration -----------------------------------------------------------------------------

# What RegisterBrokerBody.encode of rocketmq-remoting 5.3.3 made of the value below, with
# compression on: 78da is zlib at level 9.
COMPRESSED_BY_JAVA = bytes.fromhex(
    "78da5d4f5d4bc430108cfe017f811016eead1ecd51ec993791bb52f003ef8a202221cdad67b16d4a928247e97f77"
    "e38be02e0bcb3033bbc3185b4f60ecd8077420f3047cd0015fd0f9c6f620d30442d32181dd0052e4e95fcd8cb173"
    "9acbc56e53ed5e17770517d4d77c5f3e16f71b55dd167c8aa4acb243632a32e16b9efd2300997b7dc465380d0812"
    "b6e5f6897f43d45dbc8158e5cb945a4801ef049dd18409ea5e77915c3bfb85ee4a43026674ae3c3c68fa724ae56a"
    "4ee0d0b87002f9a15b8f09e060cd27c81b0a68ecef25a58eadad75ab14c9437c91c03da5a7250241b7cf238ee841"
    "66f30f57ba53bc"
)
REGISTERED = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
        data_version=DataVersion(timestamp=1700000000000, counter=7),
        topic_config_table={
            "%RETRY%CG": TopicConfig(topic_name="%RETRY%CG", read_queue_nums=1, write_queue_nums=1),
            "TopicTest": TopicConfig(
                topic_name="TopicTest",
                read_queue_nums=8,
                write_queue_nums=4,
                attributes={"message.type": "FIFO x"},
            ),
        },
        topic_queue_mapping_info_map={
            "Static": TopicQueueMappingInfo(
                topic="Static",
                scope="__global__",
                total_queues=4,
                bname="broker-a",
                epoch=9,
                curr_id_map={0: 2},
            )
        },
    ),
    filter_server_list=("127.0.0.1:1",),
)


def test_compressed_registration_of_java_is_read() -> None:
    body = decode_register_body(COMPRESSED_BY_JAVA, compressed=True, version=VERSION_OURS)
    assert body == REGISTERED


def test_compressed_registration_inflates_to_the_bytes_java_wrote() -> None:
    ours = encode_register_body(REGISTERED, compressed=True)
    assert zlib.decompress(ours) == zlib.decompress(COMPRESSED_BY_JAVA)


def test_compressed_registration_of_a_4x_broker_has_no_mappings() -> None:
    body = encode_register_body(REGISTERED, compressed=True, version=409)
    read = decode_register_body(body, compressed=True, version=409)
    wrapper = read.topic_config_serialize_wrapper
    assert (
        wrapper.topic_config_table == REGISTERED.topic_config_serialize_wrapper.topic_config_table
    )
    assert wrapper.topic_queue_mapping_info_map is None
    with pytest.raises(PeerProtocolError, match="a length is missing"):
        decode_register_body(body, compressed=True, version=VERSION_OURS)


def test_plain_registration_survives_the_wire() -> None:
    body = encode_register_body(REGISTERED)
    assert decode_register_body(body, compressed=False, version=VERSION_OURS) == REGISTERED


def test_registration_without_a_body_is_an_empty_table() -> None:
    body = decode_register_body(b"", compressed=False, version=VERSION_OURS)
    assert body == RegisterBrokerBody()
    assert body.topic_config_serialize_wrapper.data_version == DataVersion()


def test_ancient_broker_registers_with_the_bare_table() -> None:
    body = decode_register_body(
        b'{"dataVersion":{"counter":1,"timestamp":2},'
        b'"topicConfigTable":{"t":{"topicName":"t","perm":"2"}}}',
        compressed=False,
        version=36,
    )
    wrapper = body.topic_config_serialize_wrapper
    assert wrapper.data_version == DataVersion(counter=1, timestamp=2)
    assert wrapper.topic_config_table["t"].perm == 2


def test_topic_line_without_attributes_is_read() -> None:
    lines = [b"t 3 2 4 MULTI_TAG", b"u 1 1 6 SINGLE_TAG "]
    data = b"".join(
        [
            struct.pack(">i", 2) + b"{}",
            struct.pack(">i", len(lines)),
            *(struct.pack(">i", len(line)) + line for line in lines),
            struct.pack(">i", 2) + b"[]",
        ]
    )
    body = decode_register_body(zlib.compress(data), compressed=True, version=409)
    assert body.topic_config_serialize_wrapper.topic_config_table == {
        "t": TopicConfig(
            topic_name="t",
            read_queue_nums=3,
            write_queue_nums=2,
            perm=4,
            topic_filter_type=TopicFilterType.MULTI_TAG,
        ),
        "u": TopicConfig(topic_name="u", read_queue_nums=1, write_queue_nums=1),
    }


def test_compressed_registration_of_too_many_topics_is_refused_before_they_are_read() -> None:
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table={"t": TopicConfig(topic_name="t")}
        )
    )
    parts = zlib.decompress(encode_register_body(body, compressed=True))
    version_bytes = 4 + int.from_bytes(parts[:4], "big")
    many = TOPICS_MAX + 1
    lie = parts[:version_bytes] + many.to_bytes(4, "big") + parts[version_bytes + 4 :] + bytes(many)
    with pytest.raises(PeerProtocolError, match="100001 topics; the limit is 100000"):
        decode_register_body(zlib.compress(lie), compressed=True, version=479)


def test_decompression_bomb_is_refused() -> None:
    bomb = zlib.compress(bytes(INFLATED_BYTES_MAX + 1), 9)
    assert len(bomb) < 100_000
    with pytest.raises(PeerProtocolError, match="more than 16777216 bytes"):
        decode_register_body(bomb, compressed=True, version=VERSION_OURS)


@pytest.mark.parametrize(
    "body",
    [
        b"no zlib",
        COMPRESSED_BY_JAVA[:-20],
        COMPRESSED_BY_JAVA[:-1],  # all the data, but not the whole checksum
        zlib.compress(b""),
        zlib.compress(struct.pack(">i", -1)),
        zlib.compress(struct.pack(">i", 1 << 30) + b"{}"),
        zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">i", 1 << 30)),
        zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 3) + b"t 1"),
        zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 13) + b"t x 1 6 S {}?"),
    ],
)
def test_broken_compressed_registration_is_the_peers_fault(body: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        decode_register_body(body, compressed=True, version=VERSION_OURS)


# --- clients ----------------------------------------------------------------------------------


def test_heartbeat_of_a_cpp_client_is_understood() -> None:
    """Ordinals, a version as text, sets left out, and codes that are not Java's hashes."""
    heartbeat = decode(
        b'{"clientID":"10.0.0.7@1","consumerDataSet":[{"groupName":"CG","consumeType":1,'
        b'"messageModel":1,"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"T",'
        b'"subString":"TagA || TagB","subVersion":"1700000000001","codeSet":["12345"]}]}]}',
        HeartbeatData,
    )
    (consumer,) = heartbeat.consumer_data_set
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert heartbeat.producer_data_set == ()
    (subscription,) = consumer.subscription_data_set
    assert subscription.sub_version == 1700000000001
    assert subscription.expression_type == "TAG"
    assert subscription.tag_codes == frozenset({2598919, 2598920})


def test_heartbeat_of_a_go_client_with_null_sets_is_understood() -> None:
    heartbeat = decode(
        b'{"clientID":"@1","producerDataSet":null,"consumerDataSet":[{"groupName":"CG",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"BROADCASTING","consumeFromWhere":'
        b'"CONSUME_FROM_TIMESTAMP","subscriptionDataSet":null,"unitMode":false}]}',
        HeartbeatData,
    )
    assert heartbeat.producer_data_set == ()
    assert heartbeat.consumer_data_set[0].subscription_data_set == ()
    assert heartbeat.consumer_data_set[0].message_model is MessageModel.BROADCASTING
    assert not heartbeat.without_sub


def test_heartbeat_without_a_client_id_is_refused() -> None:
    with pytest.raises(JavaJsonError, match="clientID"):
        decode(b'{"producerDataSet":[]}', HeartbeatData)


def test_lock_answer_has_its_set_even_when_empty() -> None:
    assert encode(LockBatchResponseBody()) == b'{"lockOKMQSet":[]}'
    request = decode(b'{"consumerGroup":"g","clientId":"c","mqSet":[]}', LockBatchRequestBody)
    assert not request.only_this_broker


def test_assignment_that_could_not_be_computed_is_an_empty_object() -> None:
    assert encode(QueryAssignmentResponseBody()) == b"{}"
    answer = decode(
        b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"b","queueId":-1,"topic":"t"},'
        b'"mode":"POP"}]}',
        QueryAssignmentResponseBody,
    )
    assert answer.message_queue_assignments is not None
    assert answer.message_queue_assignments[0].mode is MessageRequestMode.POP


SHORT_ACKS = (
    b'{"acks":[{"b":"Cw==","c":"CG1","it":60000,"pt":1700000000000,"q":0,"r":"0","rq":3,"so":100,'
    b'"t":"TopicTest"}],"brokerName":"broker-a"}'
)
LONG_ACKS = (
    b'{"acks":[{"bitSet":"Cw==","consumerGroup":"CG1","invisibleTime":60000,'
    b'"popTime":1700000000000,"queueId":0,"retry":"0","reviveQueueId":3,"startOffset":100,'
    b'"topic":"TopicTest"}],"brokerName":"broker-a"}'
)


@pytest.mark.parametrize("body", [SHORT_ACKS, LONG_ACKS])
def test_batch_of_acknowledgements_is_read_with_short_and_long_names(body: bytes) -> None:
    batch = decode_batch_ack(body)
    assert batch == BatchAckBody(
        broker_name="broker-a",
        acks=(
            BatchAck(
                consumer_group="CG1",
                topic="TopicTest",
                start_offset=100,
                queue_id=0,
                revive_queue_id=3,
                pop_time=1700000000000,
                invisible_time=60000,
                bit_set=b"\x0b",
            ),
        ),
    )
    assert list(batch.acks[0].offsets()) == [100, 101, 103]
    assert encode(batch) == SHORT_ACKS


def test_bits_of_acknowledgements_go_on_from_the_lowest_of_the_next_byte() -> None:
    ack = BatchAck(
        consumer_group="CG1",
        topic="T",
        start_offset=100,
        queue_id=0,
        revive_queue_id=0,
        pop_time=0,
        invisible_time=0,
        bit_set=b"\x80\x00\x01",
    )
    assert list(ack.offsets()) == [107, 116]


@pytest.mark.parametrize("body", [b"[]", b'{"acks":[1]}', b'{"acks":[{}]}', b'{"acks":{}}'])
def test_batch_of_acknowledgements_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(JavaJsonError):
        decode_batch_ack(body)


# --- administration ---------------------------------------------------------------------------


def test_statistics_have_bare_queues_as_keys() -> None:
    stats = TopicStatsTable(
        offset_table=ObjectMap(
            {QUEUE: TopicOffset(min_offset=0, max_offset=10, last_update_timestamp=1700000000000)}
        ),
        topic_put_tps=0.0,
    )
    text = (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}:'
        b'{"lastUpdateTimestamp":1700000000000,"maxOffset":10,"minOffset":0}},"topicPutTps":0.0}'
    )
    assert encode(stats) == text
    assert decode(text, TopicStatsTable) == stats


def test_consume_stats_of_a_4x_broker_have_no_pull_offset() -> None:
    stats = decode(
        b'{"consumeTps":0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}'
        b':{"brokerOffset":10,"consumerOffset":7,"lastTimestamp":5}}}',
        ConsumeStats,
    )
    assert stats.offset_table == {
        QUEUE: OffsetWrapper(broker_offset=10, consumer_offset=7, last_timestamp=5)
    }


RESET_MAP = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}:100}}'
RESET_LIST = (
    b'{"offsetTable":[{"brokerName":"broker-a","offset":100,"queueId":0,"topic":"TopicTest"}]}'
)


def test_reset_has_a_map_form_and_a_list_form_for_cpp() -> None:
    body = ResetOffsetBody(offset_table=ObjectMap({QUEUE: 100}))
    assert encode_reset_offset(body) == RESET_MAP
    assert encode_reset_offset(body, as_list=True) == RESET_LIST
    assert decode_reset_offset(RESET_MAP) == body == decode_reset_offset(RESET_LIST)


def test_list_form_is_refused_where_only_a_map_is_known() -> None:
    with pytest.raises(JavaJsonError, match="Expected `object`"):
        decode(RESET_LIST, ResetOffsetBody)
    with pytest.raises(JavaJsonError, match="offset"):
        decode_reset_offset(b'{"offsetTable":[{"brokerName":"b","queueId":0,"topic":"t"}]}')


def test_offset_tables_have_bare_queue_ids_when_asked() -> None:
    wrapper = ConsumerOffsetWrapper(
        data_version=DataVersion(), offset_table={"TopicTest@CG1": {0: 7, 1: 5}}
    )
    text = encode(wrapper, bare_int_keys=True)
    assert text.endswith(b'"offsetTable":{"TopicTest@CG1":{0:7,1:5}}}')
    assert decode(text, ConsumerOffsetWrapper) == wrapper
    assert decode(b'{"offsetTable":{1:120,3:7}}', DelayOffsetWrapper).offset_table == {1: 120, 3: 7}


def test_group_settings_of_a_4x_tool_get_the_newer_defaults() -> None:
    config = decode(b'{"groupName":"CG1","retryMaxTimes":3}', SubscriptionGroupConfig)
    assert config == SubscriptionGroupConfig(group_name="CG1", retry_max_times=3)
    assert encode(config) == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        b'"groupName":"CG1","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,'
        b'"whichBrokerWhenConsumeSlowly":1}'
    )


def test_statistics_of_a_silent_broker_are_zeros() -> None:
    zeros = b'{"avgpt":0.0,"sum":0,"tps":0.0}'
    assert encode(BrokerStatsData()) == (
        b'{"statsDay":' + zeros + b',"statsHour":' + zeros + b',"statsMinute":' + zeros + b"}"
    )


def test_replication_state_of_a_lonely_master_is_as_java_shows_it() -> None:
    assert encode(HARuntimeInfo(master=True)) == (
        b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,'
        b'"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[],'
        b'"inSyncSlaveNums":0,"master":true,"masterCommitLogMaxOffset":0}'
    )


def test_user_update_carries_only_what_changes() -> None:
    update = UserInfo(username="u", user_status="disable")
    assert encode(update) == b'{"userStatus":"disable","username":"u"}'


def test_acl_without_policies_differs_from_one_with_none() -> None:
    assert decode(b'{"subject":"User:u"}', AclInfo).policies is None
    assert decode(b'{"subject":"User:u","policies":[]}', AclInfo).policies == ()


def test_timer_checkpoint_is_seven_long_integers() -> None:
    checkpoint = TimerCheckpoint(1, 2, 3, 4, DataVersion(state_version=5, timestamp=6, counter=7))
    raw = struct.pack(">7q", 1, 2, 3, 4, 5, 6, 7)
    assert encode_timer_checkpoint(checkpoint) == raw
    assert decode_timer_checkpoint(raw) == checkpoint
    with pytest.raises(PeerProtocolError, match="55 bytes"):
        decode_timer_checkpoint(raw[:-1])


# --- properties text --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a=1\nb=2\n", {"a": "1", "b": "2"}),
        ("a = 1\r\nb:2\rc 3", {"a": "1", "b": "2", "c": "3"}),
        ("# comment\n ! another\n\n  a=#no comment", {"a": "#no comment"}),
        ("a=one\\\n    two\\\r\n  three", {"a": "onetwothree"}),
        ("a=ends with two\\\\\nb=2", {"a": "ends with two\\", "b": "2"}),
        ("# a comment never continues\\\na=1", {"a": "1"}),
        ("path=C:\\\\data\\\\store", {"path": "C:\\data\\store"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=\\u4e2d\\ud83d\\ude00", {"a": "中😀"}),
        ("a=中", {"a": "中"}),
        ("alone", {"alone": ""}),
        ("=nameless", {"": "nameless"}),
        ("a=1\na=2", {"a": "2"}),
        ("a==b=c", {"a": "=b=c"}),
        ("a=trailing blanks  ", {"a": "trailing blanks  "}),
        ("a=the end\\", {"a": "the end"}),
        (
            "namesrvAddr=127.0.0.1:9876;127.0.0.2:9876",
            {"namesrvAddr": "127.0.0.1:9876;127.0.0.2:9876"},
        ),
    ],
)
def test_properties_text_is_read_as_java_reads_it(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties
    assert parse_properties(text.encode()) == properties


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u", "\\uxxxx=1"])
def test_properties_text_with_a_broken_escape_is_refused(text: str) -> None:
    with pytest.raises(PropertiesTextError, match="four hex digits"):
        parse_properties(text)


def test_properties_text_escapes_what_java_would_misread() -> None:
    properties = {"store path": " C:\\data", "#x": "中\n", "url": "h:1=2 #3", "!": ""}
    assert format_properties(properties) == (
        b"store\\ path=\\ C:\\\\data\n\\#x=\\u4e2d\\n\nurl=h:1=2 #3\n\\!=\n"
    )
    assert parse_properties(format_properties(properties)) == properties
