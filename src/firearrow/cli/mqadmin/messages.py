"""mqadmin on messages: by id, key, unique key and place; printing, sending, consuming, traces."""

from __future__ import annotations

import getpass
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.cli.mqadmin.flags import flag
from firearrow.cli.mqadmin.java_text import (
    a_map,
    message,
    moment,
    parse_moment,
    queue,
    second,
    send_result,
    truth,
)
from firearrow.cli.mqadmin.run import Command
from firearrow.cli.mqadmin.topics import TOPIC
from firearrow.cli.output import printable
from firearrow.client.message import Message
from firearrow.model.errors import BrokerError, ConsumerNotOnline, QueryNotFound
from firearrow.model.group import ConsumeType, MessageModel
from firearrow.model.topic import MessageQueue

if TYPE_CHECKING:
    from firearrow.cli.mqadmin.run import Run
    from firearrow.client.message import ReceivedMessage
    from firearrow.wire.bodies import ConsumerConnection

ID: Final = flag("i! msgId", "The message's id.")
CLUSTER: Final = flag("c cluster", "Accepted; the route is found by the topic.")
DIRECT: Final = (
    flag("g consumerGroup", "With -d: have a member of this group consume it."),
    flag("d clientId", "With -g: this member."),
)
TIMES: Final = (
    flag("b beginTimestamp", "Milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS."),
    flag("e endTimestamp", "The same, for the end."),
)


# --- one message --------------------------------------------------------------------------------


def query_by_id(run: Run) -> None:
    given, topic = run.given, run.given.text("t")
    for msg_id in filter(None, given.text("i").split(",")):
        found = run.admin.message_by_id(msg_id.strip(), topic)
        if given.has("g") and given.has("d"):
            _consume_directly(run, found)
        elif given.true("s"):
            copy = Message(found.topic, found.body, flag=found.flag)
            copy.properties = dict(found.properties)
            run.out(f"prepare resend msg. originalMsgId={msg_id}")
            run.out(send_result(run.target.producer("ReSendMsgById").send(copy)))
        else:
            print_message(run, found, offset_id=True)


def query_by_unique_key(run: Run) -> None:
    given = run.given
    if given.has("g") and given.has("d"):
        _consume_directly(run, run.admin.message_by_id(given.text("i"), given.text("t")))
        return
    found = run.admin.messages_by_key(given.text("t"), given.text("i"))
    for number, one in enumerate(found if given.has("a") else found[:1]):
        print_message(run, one, offset_id=False, number=number)


def query_by_offset(run: Run) -> None:
    given = run.given
    place = MessageQueue(
        topic=given.text("t"), broker_name=given.text("b"), queue_id=given.number("i")
    )
    try:
        found = run.admin.message_at(place, given.number("o"))
    except QueryNotFound:
        return  # as the original: it prints nothing
    ends = run.admin.min_offset(place), run.admin.max_offset(place)
    print_message(run, _ends_known(found, ends), offset_id=True)


def query_by_key(run: Run) -> None:
    given = run.given
    found = run.admin.messages_by_key(
        given.text("t"),
        given.text("k"),
        begin_ms=given.number("b", 0),
        end_ms=given.number("e", 0) or None,
        limit=given.number("m", 64),
    )
    if not found:
        raise QueryNotFound(f"topic {given.text('t')} has no message with key {given.text('k')}")
    run.out(f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}")
    for one in found:
        run.out(f"{one.msg_id:<50} {one.queue.queue_id:4d} {one.queue_offset:40d}")


def _consume_directly(run: Run, found: ReceivedMessage) -> None:
    said = run.admin.consume_directly(run.given.text("g"), run.given.text("d"), found)
    result = said.consume_result.value if said.consume_result else "null"
    run.out(
        f"ConsumeMessageDirectlyResult [order={truth(said.order)}, "
        f"autoCommit={truth(said.auto_commit)}, consumeResult={result}, "
        f"remark={truth(said.remark)}, spentTimeMills={said.spent_time_mills}]"
    )


def print_message(run: Run, one: ReceivedMessage, *, offset_id: bool, number: int = 0) -> None:
    """A message in full; its body goes to a file of its own."""
    values: list[tuple[str, object]] = [("OffsetID:", one.offset_msg_id)] if offset_id else []
    keys = " ".join(one.keys) or None
    values += [
        ("Topic:", one.topic),
        ("Tags:", f"[{truth(one.tags)}]"),
        ("Keys:", f"[{truth(keys)}]"),
        ("Queue ID:", one.queue.queue_id),
        ("Queue Offset:", one.queue_offset),
        ("CommitLog Offset:", one.commit_log_offset),
        ("Reconsume Times:", one.reconsume_times),
        ("Born Timestamp:", moment(one.born_timestamp)),
        ("Store Timestamp:", moment(one.store_timestamp)),
        ("Born Host:", one.born_host),
        ("Store Host:", one.store_host),
        ("System Flag:", one.sys_flag),
        ("Properties:", a_map(one.properties)),
        ("Message Body Path:", _body_file(one, number)),
    ]
    if offset_id and run.given.has("f"):
        values.append(("Message Body:", _decoded(one.body, run.given.text("f"))))
    for name, value in values:
        run.out(f"{name:<20} {printable(str(value))}")
    tracks = _tracks(run, one)
    run.out("\n")
    for track in tracks or ["WARN: No Consumer"]:
        run.out(track)


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:
        raise ConfigError(f"-f {charset!r}: an encoding expected, as UTF-8 or GBK") from None


def _body_file(one: ReceivedMessage, number: int) -> Path:
    """In a directory that only this user can read."""
    folder = Path(tempfile.gettempdir()) / f"firearrow-{getpass.getuser()}" / "msgbodys"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = "".join(c for c in one.msg_id if c.isalnum()) + (f"_{number}" if number else "")
    file = folder / name
    file.write_bytes(one.body)
    return file


def _tracks(run: Run, one: ReceivedMessage) -> list[str]:
    """What every group of the topic made of a message."""
    found = []
    for group in run.admin.topic_groups(one.topic):
        problem: str | None = None
        try:
            kind = _track(run, one, group, run.admin.consumer_connections(group))
        except ConsumerNotOnline as error:
            kind, problem = "NOT_ONLINE", f"CODE:206 DESC:{error}"
        except BrokerError as error:
            kind, problem = "UNKNOWN", f"CODE:{error.code} DESC:{error}"
        found.append(
            f"MessageTrack [consumerGroup={group}, trackType={kind}, "
            f"exceptionDesc={truth(problem)}]"
        )
    return found


def _track(run: Run, one: ReceivedMessage, group: str, said: ConsumerConnection) -> str:
    if said.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return "PULL"
    if said.message_model is MessageModel.BROADCASTING:
        return "CONSUME_BROADCASTING"
    consumed = any(
        place.queue == one.queue and place.committed_offset > one.queue_offset
        for place in run.admin.group_lag(group).queues
    )
    if not consumed:
        return "NOT_CONSUME_YET"
    wish = said.subscription_table.get(one.topic)
    tags = set() if wish is None else set(wish.tags_set or ())
    filtered = wish is not None and tags and "*" not in tags and one.tags not in tags
    return "CONSUMED_BUT_FILTERED" if filtered else "CONSUMED"


# --- many messages ------------------------------------------------------------------------------


def _ends(run: Run, place: MessageQueue) -> tuple[int, int]:
    least, most = run.admin.min_offset(place), run.admin.max_offset(place)
    if run.given.has("b"):
        begin = parse_moment("-b", run.given.text("b"), run.target.now_ms())
        least = run.admin.offset_at(place, begin)
    if run.given.has("e"):
        end = parse_moment("-e", run.given.text("e"), run.target.now_ms())
        most = run.admin.offset_at(place, end)
    return least, most


def _wanted_tags(run: Run) -> set[str] | None:
    text = run.given.text("s", "*")
    return None if text in {"", "*"} else {tag.strip() for tag in text.split("||")}


def _ends_known(one: ReceivedMessage, ends: tuple[int, int]) -> ReceivedMessage:
    """Java's clients write the ends of the queue into what they pull."""
    known = {"MIN_OFFSET": str(ends[0]), "MAX_OFFSET": str(ends[1])}
    one.properties = one.properties | known
    return one


def _line(one: ReceivedMessage, *, body: bool, charset: str = "UTF-8") -> str:
    shown = _decoded(one.body, charset) if body else "NOT PRINT BODY"
    crc = zlib.crc32(one.body) & 0x7FFFFFFF
    return f"MSGID: {one.msg_id} {message(one, crc)} BODY: {printable(shown)}"


def print_msg(run: Run) -> None:
    tags, body = _wanted_tags(run), run.given.true("d", default=True)
    charset = run.given.text("c") or "UTF-8"
    for place in run.admin.queues(run.given.text("t")):
        ends = run.admin.min_offset(place), run.admin.max_offset(place)
        least, most = _ends(run, place)
        run.out(f"minOffset={least}, maxOffset={most}, {queue(place)}")
        for one in run.admin.messages_between(place, least, most):
            if tags is None or one.tags in tags:
                run.out(_line(_ends_known(one, ends), body=body, charset=charset))
        run.out("-" * 56)


def print_msg_by_queue(run: Run) -> None:
    given, tags = run.given, _wanted_tags(run)
    place = MessageQueue(
        topic=given.text("t"), broker_name=given.text("a"), queue_id=given.number("i")
    )
    counts: dict[str, int] = {}
    charset = given.text("c") or "UTF-8"
    ends = run.admin.min_offset(place), run.admin.max_offset(place)
    for one in run.admin.messages_between(place, *_ends(run, place)):
        if tags is not None and one.tags not in tags:
            continue
        if given.true("p"):
            run.out(_line(_ends_known(one, ends), body=given.true("d"), charset=charset))
        if one.tags:
            counts[one.tags] = counts.get(one.tags, 0) + 1
    if given.true("f"):
        for tag, count in sorted(counts.items(), key=lambda pair: -pair[1]):
            run.out(f"Tag: {tag:<30} Count: {count}")


def consume_message(run: Run) -> None:
    given, topic = run.given, run.given.text("t")
    left = given.number("c", 128)
    if left <= 0:
        raise ConfigError("-c: a number of messages above 0 expected")
    places = run.admin.queues(topic)
    if given.has("i"):
        if not given.has("b"):
            raise ConfigError("-i needs the broker's name, too: -b NAME")
        places = [
            MessageQueue(topic=topic, broker_name=given.text("b"), queue_id=given.number("i"))
        ]
    now_ms = run.target.now_ms()
    for place in places:
        ends = least, most = run.admin.min_offset(place), run.admin.max_offset(place)
        if given.has("s"):
            least = run.admin.offset_at(place, parse_moment("-s", given.text("s"), now_ms))
        if given.has("e"):
            most = run.admin.offset_at(place, parse_moment("-e", given.text("e"), now_ms))
        least = max(least, given.number("o", 0))
        if most - least > left:
            run.out(f"The older {left} message of the {place.queue_id} queue will be provided")
            most = least + left
        found = list(run.admin.messages_between(place, least, most))
        if found:
            run.out("Consume ok")
        for one in found:
            run.out(_line(_ends_known(one, ends), body=True))
        left -= len(found)
        if left <= 0:
            return
        run.out(f"{queue(place)} print msg finished. status=NO_NEW_MSG, offset={most}")


# --- sending ------------------------------------------------------------------------------------


def send_message(run: Run) -> None:
    given = run.given
    if given.has("i") and not given.has("b"):
        raise ConfigError("-i needs the broker's name, too: -b NAME")
    made = Message(
        given.text("t"),
        given.text("p"),
        tags=given.optional("c"),
        keys=given.optional("k"),
    )
    producer = run.target.producer("MQADMIN_SENDER", trace=given.true("m"))
    place = None
    if given.has("i"):
        place = MessageQueue(
            topic=given.text("t"), broker_name=given.text("b"), queue_id=given.number("i")
        )
    receipt = producer.send(made, queue=place) if place else producer.send(made)
    run.out(f"{'#Broker Name':<32}  {'#QID':<4}  {'#Send Result':<20}    #MsgId")
    run.out(
        f"{receipt.queue.broker_name:<32}  {receipt.queue.queue_id:<4}  "
        f"{receipt.status.name:<20}    {receipt.msg_id}"
    )


def check_send_rt(run: Run) -> None:
    topic = run.given.text("t")
    amount, size = run.given.number("a", 100), run.given.number("s", 128)
    producer, total_ms = run.target.producer("MQADMIN_SENDER"), 0
    run.out(f"{'#Broker Name':<32}  {'#QID':<4}  {'#Send Result':<20}    #RT")
    for number in range(amount):
        began, place, sent = time.perf_counter(), None, True
        try:
            place = producer.send(Message(topic, b"a" * size)).queue
        except FirearrowError:
            sent = False
        spent_ms = round(1000 * (time.perf_counter() - began))
        total_ms += spent_ms if number else 0  # the first one connects
        name, queue_id = ("", 0) if place is None else (place.broker_name, place.queue_id)
        run.out(f"{name:<32}  {queue_id:<4}  {truth(sent):<20}    {spent_ms}")
    run.out(f"Avg RT: {total_ms / max(1, amount - 1):.2f}")


def send_msg_status(run: Run) -> None:
    topic = run.given.text("b")
    producer = run.target.producer("PID_SMSC")
    producer.send(Message(topic, b"a" * 16))
    for _ in range(run.given.number("c", 50)):
        began = time.perf_counter()
        receipt = producer.send(Message(topic, b"a" * run.given.number("s", 128)))
        spent_ms = round(1000 * (time.perf_counter() - began))
        run.out(f"rt={spent_ms}ms, SendResult={send_result(receipt)}")


# --- traces -------------------------------------------------------------------------------------


def query_trace(run: Run) -> None:
    given = run.given
    try:
        trace = run.admin.message_trace(
            given.text("i"),
            trace_topic=given.optional("t"),
            begin_ms=given.number("b", 0),
            end_ms=given.number("e", 0) or None,
        )
    except QueryNotFound:
        raise QueryNotFound(f"no trace of message {given.text('i')} was found") from None
    line = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}"
    for one in trace.published:
        run.out(
            line.format(
                "#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"
            )
        )
        state = "success" if one.success else "failed"
        run.out(
            line.format(
                "Pub",
                one.group,
                truth(one.client_host),
                second(one.timestamp_ms),
                f"{one.cost_ms}ms",
                state,
            )
        )
        run.out()
    by_group: dict[str, list[str]] = {}
    for delivery in trace.deliveries:
        if delivery.after is None:
            continue
        after, before = delivery.after, delivery.before
        state = "success" if after.success else "failed"
        at_ms = after.timestamp_ms or (before.timestamp_ms if before else 0)
        by_group.setdefault(delivery.group or "", []).append(
            line.format(
                "Sub",
                delivery.group or "",
                truth(before.client_host if before else None),
                second(at_ms),
                f"{after.cost_ms}ms",
                state,
            )
        )
    for rows in by_group.values():
        run.out(
            line.format(
                "#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"
            )
        )
        for row in rows:
            run.out(row)
        run.out()


BODY: Final = flag("d printBody", "false: without bodies.")
TAGS: Final = flag("s subExpression", "Tags, as 'TagA || TagB'.")
CHARSET: Final = flag("c charsetName", "Of bodies; UTF-8.")
COMMANDS: Final = (
    Command(
        "queryMsgById",
        "A message by its id; also sent again, or consumed by one member.",
        (
            TOPIC,
            ID,
            *DIRECT,
            flag("s sendMessage", "true: send it again."),
            flag("u unitName", "Accepted."),
            flag("f bodyFormat", "Print the body in this encoding."),
            CLUSTER,
        ),
        query_by_id,
    ),
    Command(
        "queryMsgByKey",
        "Messages with a key.",
        (
            TOPIC,
            flag("k! msgKey", "The key."),
            flag("b beginTimestamp", "Milliseconds."),
            flag("e endTimestamp", "Milliseconds."),
            flag("m maxNum", "At most; 64."),
            CLUSTER,
        ),
        query_by_key,
    ),
    Command(
        "queryMsgByUniqueKey",
        "A message by its producer's id.",
        (TOPIC, ID, *DIRECT, flag("a| showAll", "All of them, up to 32."), CLUSTER),
        query_by_unique_key,
    ),
    Command(
        "queryMsgByOffset",
        "The message at a place.",
        (
            TOPIC,
            flag("b! brokerName", "The broker's name."),
            flag("i! queueId", "The queue."),
            flag("o! offset", "The offset."),
            flag("f bodyFormat", "Print the body in this encoding."),
        ),
        query_by_offset,
    ),
    Command(
        "queryMsgTraceById",
        "What clients wrote down about a message.",
        (
            ID,
            flag("t traceTopic", "Where traces are."),
            flag("b beginTimestamp", "Milliseconds."),
            flag("e endTimestamp", "Milliseconds."),
            flag("c maxNum", "Accepted."),
        ),
        query_trace,
    ),
    Command(
        "printMsg",
        "All messages of a topic.",
        (TOPIC, CHARSET, TAGS, *TIMES, BODY, flag("l lmqParentTopic", "Accepted.")),
        print_msg,
    ),
    Command(
        "printMsgByQueue",
        "All messages of a queue.",
        (
            TOPIC,
            flag("a! brokerName", "The broker's name."),
            flag("i! queueId", "The queue."),
            CHARSET,
            TAGS,
            *TIMES,
            flag("p printMsg", "true: print them."),
            flag("d printBody", "true: with bodies."),
            flag("f calculate", "true: count them by tag."),
        ),
        print_msg_by_queue,
    ),
    Command(
        "consumeMessage",
        "Print messages of a topic, from the oldest on.",
        (
            TOPIC,
            flag("b brokerName", "The broker's name."),
            flag("i queueId", "This queue only."),
            flag("o offset", "From this offset on."),
            flag("g consumerGroup", "Accepted; no group is moved."),
            flag("s beginTimestamp", "Milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS."),
            flag("e endTimestamp", "The same, for the end."),
            flag("c MessageNumber", "At most; 128."),
        ),
        consume_message,
    ),
    Command(
        "sendMessage",
        "Send a message.",
        (
            TOPIC,
            flag("p! body", "Text."),
            flag("k key", "Its keys."),
            flag("c tags", "Its tag."),
            flag("b broker", "With -i: this broker's name."),
            flag("i qid", "With -b: this queue."),
            flag("m msgTraceEnable", "true: with a trace."),
        ),
        send_message,
    ),
    Command(
        "checkMsgSendRT",
        "How long sends to a topic take.",
        (TOPIC, flag("a amount", "Messages; 100."), flag("s size", "Bytes; 128.")),
        check_send_rt,
    ),
    Command(
        "sendMsgStatus",
        "How long sends to a broker's own topic take.",
        (
            flag("b! brokerName", "The topic that has the broker's name."),
            flag("s messageSize", "Bytes; 128."),
            flag("c count", "Messages; 50."),
        ),
        send_msg_status,
    ),
)
