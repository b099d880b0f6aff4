"""mqadmin on progress: how far groups are, moving them, giving one another's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.cli.mqadmin.flags import flag
from firearrow.cli.mqadmin.java_text import front, parse_moment, second
from firearrow.cli.mqadmin.run import Command
from firearrow.cli.mqadmin.topics import TOPIC
from firearrow.model.errors import ConsumerNotOnline
from firearrow.model.group import ConsumeType
from firearrow.model.topic import is_retry_topic
from firearrow.wire.codes import RequestCode, version_name
from firearrow.wire.headers import ResetOffsetRequest

if TYPE_CHECKING:
    from firearrow.cli.mqadmin.run import Run
    from firearrow.client.admin_results import OffsetReset
    from firearrow.model.topic import MessageQueue

GROUP: Final = flag("g! group", "The consumer group.")
RETRY: Final = "%RETRY%"


def consumer_progress(run: Run) -> None:
    if run.given.has("g"):
        _one_group(run, run.given.text("g"))
    else:
        _all_groups(run)


def _one_group(run: Run, group: str) -> None:
    lag = run.admin.group_lag(group, run.given.optional("t"))
    if not lag.queues:
        raise ConsumerNotOnline(f"group {group} has consumed nothing yet, and is not online")
    clients = _clients(run, group) if run.given.true("s") else None
    line = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  "
    heads = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    ip_head = "" if clients is None else f"{'#Client IP':<20} "
    run.out(line.format(*heads) + ip_head + f"{'#Diff':<20} {'#Inflight':<20}#LastTime")
    behind = in_flight = 0
    for one in lag.queues:
        diff = one.broker_offset - one.committed_offset
        behind, in_flight = behind + diff, in_flight + one.in_flight
        last = second(one.last_timestamp_ms) if one.last_timestamp_ms else "N/A"
        client = "" if clients is None else f"{clients.get(one.queue, 'N/A'):<20} "
        run.out(
            line.format(
                front(one.queue.topic, 64),
                front(one.queue.broker_name, 32),
                one.queue.queue_id,
                one.broker_offset,
                one.committed_offset,
            )
            + f"{client}{diff:<20} {one.in_flight:<20} {last}"
        )
    run.out()
    run.out(f"Consume TPS: {lag.consume_tps:.2f}")
    run.out(f"Consume Diff Total: {behind}")
    run.out(f"Consume Inflight Total: {in_flight}")


def _clients(run: Run, group: str) -> dict[MessageQueue, str]:
    """Which member has which queue, by its address."""
    found: dict[MessageQueue, str] = {}
    try:
        members = run.admin.consumer_connections(group).connection_set
    except ConsumerNotOnline:
        return found
    for one in members:
        try:
            said = run.admin.running_info(group, one.client_id)
        except FirearrowError:
            continue  # it left, or does not say
        found |= dict.fromkeys(said.mq_table, one.client_id.partition("@")[0])
    return found


def _all_groups(run: Run) -> None:
    heads = ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    run.out("{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}".format(*heads))
    lags = run.admin.group_lags()
    for topic in run.admin.topics(include_system=True):
        if not is_retry_topic(topic):
            continue
        group = topic.removeprefix(RETRY)
        lag = lags.get(group)
        count, version, kind, model = 0, "OFFLINE", "", ""
        try:
            found = run.admin.consumer_connections(group)
        except FirearrowError:
            pass  # nobody is there
        else:
            count = len(found.connection_set)
            version = version_name(min(one.version for one in found.connection_set))
            active = found.consume_type is ConsumeType.CONSUME_ACTIVELY
            kind = "PULL" if active else "PUSH"
            model = "" if active else (found.message_model or "")
        tps = int(lag.consume_tps) if lag else 0
        run.out(
            f"{front(group, 64):<64}  {count:<6}  {version:<24} {kind:<5}  {model:<14}  {tps:<7}  "
            f"{lag.total if lag else 0}"
        )


# --- moving -------------------------------------------------------------------------------------


def reset_offset_by_time(run: Run) -> None:
    given = run.given
    group, topic, stamp = given.text("g"), given.text("t"), given.text("s")
    timestamp = parse_moment("-s", stamp, run.target.now_ms())
    force = given.true("f", default=True)
    if given.has("b") and given.has("q"):
        _reset_queue(run, group, topic, timestamp)
        return
    if timestamp < 0:
        done = run.admin.reset_offset(group, topic, "latest", force=force)
    else:
        done = run.admin.reset_offset(group, topic, timestamp, force=force)
    run.out(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], "
        f"force[{'true' if force else 'false'}], timestamp(string)[{stamp}], "
        f"timestamp(long)[{timestamp}]"
    )
    _print_offsets(run, done)


def _print_offsets(run: Run, done: OffsetReset) -> None:
    run.out(f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}")
    for one in done.queues:
        run.out(
            f"{front(one.queue.broker_name, 32):<40}  {one.queue.queue_id:<40}  {one.target:<40}"
        )


def _reset_queue(run: Run, group: str, topic: str, timestamp: int) -> None:
    """One queue of one broker, to a time or to an offset."""
    given = run.given
    address, number = given.text("b"), given.number("q")
    run.out(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], "
        f"queueId[{number}], broker[{address}], timestamp(string)[{given.text('s')}], "
        f"timestamp(long)[{timestamp}]"
    )
    names = {
        at: data.broker_name
        for data in run.admin.clusters().broker_addr_table.values()
        for at in data.broker_addrs.values()
    }
    if address not in names:
        raise ConfigError(f"no broker is registered at {address}")
    if given.has("o"):
        offset = given.number("o")
    else:
        place = next(
            (
                one
                for one in run.admin.queues(topic)
                if one.queue_id == number and one.broker_name == names[address]
            ),
            None,
        )
        if place is None:
            raise ConfigError(f"topic {topic} has no queue {number} on {address}")
        offset = run.admin.offset_at(place, timestamp)
    run.out(f"reset consumer offset to {offset}")
    if offset > 0:
        run.admin.request(
            address,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetRequest(
                group=group,
                topic=topic,
                timestamp=0,
                is_force=True,
                queue_id=number,
                offset=offset,
            ),
        )


def skip_accumulated(run: Run) -> None:
    force = run.given.true("f", default=True)
    done = run.admin.reset_offset(run.given.text("g"), run.given.text("t"), "latest", force=force)
    _print_offsets(run, done)


def clone_group_offset(run: Run) -> None:
    given = run.given
    source, heir, topic = given.text("s"), given.text("d"), given.text("t")
    run.admin.clone_offsets(source, heir)
    run.out(f"clone group offset success. srcGroup[{source}], destGroup=[{heir}], topic[{topic}]")


COMMANDS: Final = (
    Command(
        "consumerProgress",
        "How far a group is in each queue; without -g, all groups.",
        (
            flag("g groupName", "The group."),
            flag("t topicName", "In this topic only."),
            flag("s showClientIP", "true: also which member has each queue."),
            flag("c cluster", "Accepted; the route is found by the group."),
        ),
        consumer_progress,
    ),
    Command(
        "resetOffsetByTime",
        "Have a group go on at a time, or one queue at an offset.",
        (
            GROUP,
            TOPIC,
            flag("s! timestamp", "now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS; -1: the end."),
            flag("f force", "false: only backwards."),
            flag("c cluster", "Accepted; the topic says where its queues are."),
            flag("| cplus", "Accepted; C++ clients need nothing special."),
            flag("b broker", "With -q: this broker, HOST:PORT."),
            flag("q queue", "With -b: this queue."),
            flag("o offset", "With -b and -q: to this offset."),
        ),
        reset_offset_by_time,
    ),
    Command(
        "skipAccumulatedMessage",
        "Have a group skip all that waits for it.",
        (GROUP, TOPIC, flag("f force", "false: only backwards."), flag("c cluster", "Accepted.")),
        skip_accumulated,
    ),
    Command(
        "cloneGroupOffset",
        "Put a group where another one is.",
        (
            flag("s! srcGroup", "Whose place."),
            flag("d! destGroup", "Who gets it."),
            TOPIC,
            flag("o offline", "Accepted."),
        ),
        clone_group_offset,
    ),
)
