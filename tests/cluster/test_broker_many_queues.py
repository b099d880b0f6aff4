"""Twenty thousand queues on one broker: each takes messages and returns them, memory stays sane."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.broker_requests import pull, send, sent, texts
from tests.support import UpProcess

from firearrow.base.runtime import SystemClock
from firearrow.net.client import RemotingClient

if TYPE_CHECKING:
    from firearrow.wire.command import Command

TOPICS = 20
QUEUES = 1_000  # each
IN_FLIGHT = 256
MEBIBYTES_MAX = 300  # twice what it takes


def resident_mebibytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) // 1024


async def ask_all(process: UpProcess, commands: list[Command]) -> list[Command]:
    client = RemotingClient(SystemClock())
    room = asyncio.Semaphore(IN_FLIGHT)

    async def one(command: Command) -> Command:
        async with room:
            return await client.invoke(process.broker, command, 50_000)

    try:
        return await asyncio.gather(*map(one, commands))
    finally:
        await client.close()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, as on Linux")
async def test_twenty_thousand_queues_take_messages_and_give_them_back(tmp_path: Path) -> None:
    queues = [(f"topic-{topic}", queue) for topic in range(TOPICS) for queue in range(QUEUES)]
    with UpProcess(tmp_path / "data", "-o", f"defaultTopicQueueNums={QUEUES}") as process:
        for replies in (
            await ask_all(process, [one_message(*queue) for queue in queues]),
            await ask_all(process, [one_message(*queue) for queue in queues]),
        ):
            assert len({(reply.ext["msgId"]) for reply in replies}) == len(queues)
        assert {sent(reply).queue_offset for reply in replies} == {1}
        replies = await ask_all(process, [pull(topic=name, queue_id=at) for name, at in queues])
        for (name, queue_id), reply in zip(queues, replies, strict=True):
            assert texts(reply) == [f"{name}/{queue_id}".encode()] * 2
        assert resident_mebibytes(process.popen.pid) < MEBIBYTES_MAX


def one_message(topic: str, queue_id: int) -> Command:
    body = f"{topic}/{queue_id}".encode()
    return send(body, topic=topic, queue_id=queue_id, default_topic_queue_nums=QUEUES)
