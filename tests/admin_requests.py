"""Questions as administrators ask them, and the documents that answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.broker_requests import TOPIC, send, sent

from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request

if TYPE_CHECKING:
    from tests.support import ServedBroker

    from firearrow.wire.header import Header


def create(topic: str = TOPIC, queues: int = 4, **fields: Any) -> Command:
    given: dict[str, Any] = {
        "topic": topic,
        "default_topic": "TBW102",
        "read_queue_nums": queues,
        "write_queue_nums": queues,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
    }
    ext = {
        "readQueueNums": "read_queue_nums",
        "writeQueueNums": "write_queue_nums",
        "defaultTopic": "default_topic",
        "topicFilterType": "topic_filter_type",
    }
    command = request(RequestCode.UPDATE_AND_CREATE_TOPIC)
    values = given | fields
    command.ext = {name: str(values.pop(field)) for name, field in ext.items()}
    command.ext |= {name: str(value) for name, value in values.items()}
    return command


async def told(served: ServedBroker, code: RequestCode, header: Header | None = None) -> Command:
    """The answer to a question that must be answered."""
    reply = await served.ask(request(code, header))
    assert reply.code == 0, reply.remark
    return reply


async def body_of(
    served: ServedBroker, code: RequestCode, header: Header | None = None, body: bytes = b""
) -> Any:
    """The document that answers a question."""
    reply = await served.ask(request(code, header, body))
    assert reply.code == 0, reply.remark
    return java_json.decode(reply.body, bodies.RESPONSE_BODIES[code])


async def put(served: ServedBroker, *texts: bytes, **fields: Any) -> list[headers.SendMessageReply]:
    """Send messages and wait until readers see them."""
    replies = [sent(await served.ask(send(text, **fields))) for text in texts]
    store = served.broker.state.store
    await store.wait_visible(store.statistics().end_offset)
    return replies


async def route(served: ServedBroker, topic: str = TOPIC) -> Command:
    header = headers.GetRouteInfoRequest(topic=topic)
    return await served.ask_nameserver(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
