"""What etcd 3.4.23 says over its gateway, byte for byte, and how members are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from tests.cluster.test_http_client import PATIENCE_MS, answering
from tests.etcd_model import EtcdModel, Fault

from firearrow.base.runtime import SystemClock
from firearrow.controller.etcd import Etcd, EtcdError, KeyValue
from firearrow.net.errors import ConnectionLost
from firearrow.net.http_client import Site

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HEADER: Final = (
    b'"header":{"cluster_id":"324952591200643719","member_id":"3319814642761637952",'
    b'"revision":"2","raft_term":"2"}'
)
HEAD: Final = (
    b"HTTP/1.0 %s\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: application/json\r\n"
    b"Grpc-Metadata-Content-Type: application/grpc\r\nDate: Wed, 18 Nov 2026 20:10:13 GMT\r\n\r\n"
)
LEASE: Final = 2324035461094864903


def told(body: bytes, status: bytes = b"200 OK") -> bytes:
    return HEAD % status + body


def etcd_at(*sites: Site) -> Etcd:
    return Etcd(sites, SystemClock(), timeout_ms=PATIENCE_MS)


RECORDED: Final[dict[str, tuple[bytes, Callable[[Etcd], Awaitable[object]], object, bytes]]] = {
    "a lease is granted": (
        told(b"{" + HEADER + b',"ID":"2324035461094864903","TTL":"3"}'),
        lambda etcd: etcd.grant(3),
        (LEASE, 3),
        b'{"TTL":"3"}',
    ),
    "a lease is kept alive": (
        told(b'{"result":{' + HEADER + b',"ID":"2324035461094864903","TTL":"3"}}\n'),
        lambda etcd: etcd.keep_alive(LEASE),
        3,
        b'{"ID":"2324035461094864903"}',
    ),
    "a lease that is gone has no time": (
        told(b'{"result":{' + HEADER + b',"ID":"2324035461094864903"}}\n'),
        lambda etcd: etcd.keep_alive(LEASE),
        0,
        b'{"ID":"2324035461094864903"}',
    ),
    "a lease that is gone is revoked already": (
        told(
            b'{"error":"etcdserver: requested lease not found",'
            b'"message":"etcdserver: requested lease not found","code":5}',
            b"404 Not Found",
        ),
        lambda etcd: etcd.revoke(LEASE),
        None,
        b'{"ID":"2324035461094864903"}',
    ),
    "a key is found": (
        told(
            b"{" + HEADER + b',"kvs":[{"key":"L2ZhL2xlYWRlcg==","create_revision":"2",'
            b'"mod_revision":"2","version":"1","value":"L2ZhL2xlYWRlcg==",'
            b'"lease":"2324035461094864903"}],"count":"1"}'
        ),
        lambda etcd: etcd.get(b"/fa/leader"),
        KeyValue(key=b"/fa/leader", value=b"/fa/leader", create_revision=2, lease=LEASE),
        b'{"key":"L2ZhL2xlYWRlcg=="}',
    ),
    "a key is not there": (
        told(b"{" + HEADER + b"}"),
        lambda etcd: etcd.get(b"/fa/leader"),
        None,
        b'{"key":"L2ZhL2xlYWRlcg=="}',
    ),
    "everything under a prefix": (
        told(b"{" + HEADER + b"}"),
        lambda etcd: etcd.get_all(b"/fa/"),
        [],
        b'{"key":"L2ZhLw==","range_end":"L2ZhMA=="}',
    ),
    "a guarded change is made": (
        told(
            b"{" + HEADER + b',"succeeded":true,"responses":[{"response_put":{"header":'
            b'{"revision":"2"}}}]}'
        ),
        lambda etcd: etcd.put_if_created_at(b"/fa/leader", 0, b"/fa/leader", b"n0", lease=LEASE),
        2,
        (
            b'{"compare":[{"key":"L2ZhL2xlYWRlcg==","target":"CREATE","result":"EQUAL",'
            b'"create_revision":"0"}],"success":[{"request_put":{"key":"L2ZhL2xlYWRlcg==",'
            b'"value":"bjA=","lease":"2324035461094864903"}}]}'
        ),
    ),
    "a guarded change is not made": (
        told(b"{" + HEADER + b"}"),
        lambda etcd: etcd.delete_if_created_at(b"/fa/leader", 7, b"/fa/x"),
        None,
        (
            b'{"compare":[{"key":"L2ZhL2xlYWRlcg==","target":"CREATE","result":"EQUAL",'
            b'"create_revision":"7"}],"success":[{"request_delete_range":{"key":"L2ZhL3g="}}]}'
        ),
    ),
}


@pytest.mark.parametrize("what", RECORDED)
async def test_answers_of_a_real_etcd_are_understood(what: str) -> None:
    answer, ask, meaning, question = RECORDED[what]
    async with answering(answer) as (site, heard):
        assert await ask(etcd_at(site)) == meaning
    # The server of this test stops listening at the first closing bracket.
    body = heard[0].partition(b"\r\n\r\n")[2]
    assert question.startswith(body)
    assert f"Content-Length: {len(question)}".encode() in heard[0]


async def test_refusal_is_told_in_etcds_own_words() -> None:
    body = b'{"error":"etcdserver: mvcc: database space exceeded","code":8}'
    async with answering(told(body, b"429 Too Many Requests")) as (site, _):
        with pytest.raises(EtcdError, match=r"429 .*database space exceeded"):
            await etcd_at(site).grant(3)


async def test_answer_of_somebody_else_is_refused() -> None:
    async with answering(told(b'{"kvs":"none"}')) as (site, _):
        with pytest.raises(EtcdError, match="not etcd's"):
            await etcd_at(site).get(b"/fa/leader")


async def test_question_goes_to_the_next_member_and_stays_there() -> None:
    first, second = EtcdModel(SystemClock()), EtcdModel(SystemClock())
    await first.start()
    await second.start()
    first.fault = lambda _: Fault.REFUSED
    etcd = etcd_at(Site("127.0.0.1", first.port), Site("127.0.0.1", second.port))
    for _ in range(3):
        assert await etcd.get(b"/x") is None
    assert (len(first.asked), len(second.asked)) == (1, 3)
    first.stop()
    second.stop()


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSED])
async def test_change_that_may_have_been_made_is_not_sent_again(fault: Fault) -> None:
    first, second = EtcdModel(SystemClock()), EtcdModel(SystemClock())
    await first.start()
    await second.start()
    first.fault = lambda _: fault
    etcd = etcd_at(Site("127.0.0.1", first.port), Site("127.0.0.1", second.port))
    with pytest.raises((ConnectionLost, EtcdError)):
        await etcd.put_if_created_at(b"/guard", 0, b"/x", b"1")
    assert not second.asked
    first.stop()
    assert await etcd.put_if_created_at(b"/guard", 0, b"/x", b"1")  # nobody heard it but this one
    second.stop()
