"""The blocking Admin, generated from the asyncio one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow import Admin, Message, Producer, PullConsumer

if TYPE_CHECKING:
    from firearrow.testing import LocalCluster


def test_admin_creates_looks_and_resets_without_await(rocketmq: LocalCluster) -> None:
    with (
        Admin(nameservers=rocketmq.nameservers) as admin,
        Producer("tests", nameservers=rocketmq.nameservers) as producer,
        PullConsumer("readers", nameservers=rocketmq.nameservers) as reader,
    ):
        admin.create_topic("orders", queues=2)
        sent = [producer.send(Message("orders", f"{n}", keys="k")) for n in range(4)]
        queues = reader.queues("orders")
        assert len(queues) == 2
        reader.assign(queues)
        for queue in queues:
            reader.seek_to_beginning(queue)
        got = 0
        while got < 4:
            got += len(reader.poll())
        reader.commit()
        assert admin.group_lag("readers", "orders").total == 0
        plan = admin.reset_offset("readers", "orders", "earliest", dry_run=True)
        assert plan is not None
        assert admin.message_by_id(sent[0].msg_id, "orders").text == "0"
        assert {message.text for message in admin.messages_by_key("orders", "k")} == set("0123")
        assert list(admin.dlq_messages("readers")) == []
