"""The cluster as Admin sees it: who is there, where to ask, and settings of servers.

Nothing is remembered: whoever changes a topic wants to see it changed, so routes are asked for
anew each time. Names here are those on the wire; `Admin` translates.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from firearrow.base.errors import FirearrowError
from firearrow.client.admin_results import BrokerInfo
from firearrow.client.calls import Calls
from firearrow.client.errors import BrokerNotFound, InvalidRequest, NoRoute
from firearrow.model.errors import TopicNotFound
from firearrow.wire import java_json
from firearrow.wire.bodies import ClusterInfo, KVTable, TopicRouteData
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import (
    AddWritePermOfBrokerReply,
    AddWritePermOfBrokerRequest,
    DeleteKVConfigRequest,
    GetKVConfigReply,
    GetKVConfigRequest,
    GetKVListByNamespaceRequest,
    GetRouteInfoRequest,
    PutKVConfigRequest,
    WipeWritePermOfBrokerReply,
    WipeWritePermOfBrokerRequest,
)
from firearrow.wire.properties_text import format_properties, parse_properties

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from firearrow.client.session import Session
    from firearrow.model.topic import BrokerData, MessageQueue
    from firearrow.wire.header import Header

    T = TypeVar("T")


async def together(questions: Iterable[Awaitable[T]]) -> list[T]:
    """All answers, or the first failure once everybody has answered."""
    answers = await asyncio.gather(*questions, return_exceptions=True)
    found: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found


def master_of(broker: BrokerData) -> str:
    """The address that takes changes."""
    if broker.master_addr is None:
        raise BrokerNotFound(f"broker {broker.broker_name} has no master now")
    return broker.master_addr


def any_of(broker: BrokerData) -> str:
    """The master's address, or that of another member which can answer as well."""
    if not broker.broker_addrs:
        raise BrokerNotFound(f"no member of broker {broker.broker_name} is registered")
    return broker.broker_addrs[min(broker.broker_addrs)]


class Cluster:
    """Finds brokers and asks them; asks name servers."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls = Calls(session)

    # --- names ------------------------------------------------------------------------------

    def is_ours(self, name: str) -> bool:
        """Whether a topic or group belongs to this client's namespace; without one, all do."""
        return not self.session.options.namespace or self.session.unwrap(name) != name

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """A queue by the application's name for its topic."""
        return msgspec.structs.replace(queue, topic=self.session.unwrap(queue.topic))

    def on_wire(self, queue: MessageQueue) -> MessageQueue:
        return msgspec.structs.replace(queue, topic=self.session.wrap(queue.topic))

    # --- asking -----------------------------------------------------------------------------

    async def ask(
        self,
        address: str,
        code: RequestCode,
        kind: type[T],
        header: Header | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> T:
        """A question whose answer is a document."""
        answer = await self.session.call(address, code, header, timeout_ms=timeout_ms)
        return java_json.decode(answer.body, kind)

    async def ask_names(self, code: RequestCode, kind: type[T], header: Header | None = None) -> T:
        """The same, to any name server."""
        answer = await self.session.ask_nameserver(code, header)
        return java_json.decode(answer.body, kind)

    # --- who is there -----------------------------------------------------------------------

    async def info(self) -> ClusterInfo:
        return await self.ask_names(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)

    async def all_brokers(self) -> list[BrokerData]:
        """Every broker that has a master."""
        table = (await self.info()).broker_addr_table
        return [broker for _, broker in sorted(table.items()) if broker.master_addr]

    async def chosen(self, cluster: str | None, broker: str | None) -> list[BrokerData]:
        """The brokers meant by a broker's name or address, or by a cluster's name.

        If nothing is named there must be one cluster only, and all of it is meant.
        """
        info = await self.info()
        table = info.broker_addr_table
        if not table:
            raise BrokerNotFound(f"no broker is registered, say {self.session.names}")
        if broker is not None:
            for data in table.values():
                if broker == data.broker_name or broker in data.broker_addrs.values():
                    return [data]
            raise BrokerNotFound(f"there is no broker {broker}, only {', '.join(sorted(table))}")
        clusters = info.cluster_addr_table
        if cluster is None:
            if len(clusters) > 1:
                raise InvalidRequest(f"name one of the clusters: {', '.join(sorted(clusters))}")
            cluster = next(iter(clusters), "")
        if cluster not in clusters:
            raise InvalidRequest(
                f"there is no cluster {cluster}, only {', '.join(sorted(clusters))}"
            )
        return [table[name] for name in sorted(clusters[cluster]) if name in table]

    async def one(self, broker: str) -> str:
        """The address of a broker: a name stands for its master, an address for itself."""
        (data,) = await self.chosen(None, broker)
        return broker if broker in data.broker_addrs.values() else master_of(data)

    async def master(self, broker_name: str) -> str:
        """The address of a master; the session knows it afterwards."""
        address = self.session.brokers.master(broker_name)
        if address is None:
            table = (await self.info()).broker_addr_table
            self.session.brokers.update(TopicRouteData(broker_datas=tuple(table.values())))
            address = self.session.brokers.master(broker_name)
        if address is None:
            raise BrokerNotFound(f"no master of broker {broker_name} is registered")
        return address

    async def brokers(self) -> list[BrokerInfo]:
        """Every member of every broker; one that cannot be asked is listed with the reason."""
        info = await self.info()
        return await together(
            self._broker_info(broker, number, address)
            for _, broker in sorted(info.broker_addr_table.items())
            for number, address in sorted(broker.broker_addrs.items())
        )

    async def _broker_info(self, broker: BrokerData, number: int, address: str) -> BrokerInfo:
        runtime: dict[str, str] = {}
        problem = None
        try:
            runtime = (await self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table
        except FirearrowError as error:
            problem = str(error)
        return BrokerInfo(
            cluster=broker.cluster,
            name=broker.broker_name,
            broker_id=number,
            address=address,
            runtime=runtime,
            error=problem,
        )

    # --- routes -----------------------------------------------------------------------------

    async def find_route(self, topic: str) -> TopicRouteData | None:
        """Where a topic lives, as a name server says at this moment."""
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        try:
            route = await self.ask_names(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicRouteData, header)
        except TopicNotFound:
            return None
        self.session.brokers.update(route)
        return route

    async def route(self, topic: str) -> TopicRouteData:
        route = await self.find_route(topic)
        if route is None:
            raise NoRoute(f"no broker serves topic {topic}, say {self.session.names}")
        return route

    # --- settings of brokers ----------------------------------------------------------------

    async def broker_config(self, address: str) -> dict[str, str]:
        answer = await self.session.call(address, RequestCode.GET_BROKER_CONFIG)
        return parse_properties(answer.body)

    async def update_broker_config(
        self, settings: Mapping[str, str], cluster: str | None, broker: str | None
    ) -> None:
        if not settings:
            raise InvalidRequest("no setting is given that should be changed")
        if cluster is None and broker is None:
            raise InvalidRequest("name the broker, or the cluster, whose settings should change")
        if broker is not None:
            addresses = [await self.one(broker)]
        else:
            addresses = [master_of(one) for one in await self.chosen(cluster, None)]
        body = format_properties(settings)
        await together(
            self.session.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
            for address in addresses
        )

    # --- settings of name servers: each has its own ----------------------------------------

    async def nameserver_config(self) -> dict[str, dict[str, str]]:
        addresses = sorted(self.session.names.addresses)
        answers = await together(
            self.session.call(address, RequestCode.GET_NAMESRV_CONFIG) for address in addresses
        )
        return {
            address: parse_properties(answer.body)
            for address, answer in zip(addresses, answers, strict=True)
        }

    async def update_nameserver_config(self, settings: Mapping[str, str]) -> None:
        if not settings:
            raise InvalidRequest("no setting is given that should be changed")
        await self._tell_names(RequestCode.UPDATE_NAMESRV_CONFIG, body=format_properties(settings))

    async def _tell_names(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> None:
        await together(
            self.session.call(address, code, header, body)
            for address in self.session.names.addresses
        )

    async def kv(self, namespace: str, key: str) -> str:
        header = GetKVConfigRequest(namespace=namespace, key=key)
        answer = await self.session.ask_nameserver(RequestCode.GET_KV_CONFIG, header)
        return GetKVConfigReply.from_ext(answer.ext).value or ""

    async def kv_namespace(self, namespace: str) -> dict[str, str]:
        header = GetKVListByNamespaceRequest(namespace=namespace)
        return (await self.ask_names(RequestCode.GET_KVLIST_BY_NAMESPACE, KVTable, header)).table

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        header = PutKVConfigRequest(namespace=namespace, key=key, value=value)
        await self._tell_names(RequestCode.PUT_KV_CONFIG, header)

    async def delete_kv(self, namespace: str, key: str) -> None:
        header = DeleteKVConfigRequest(namespace=namespace, key=key)
        await self._tell_names(RequestCode.DELETE_KV_CONFIG, header)

    async def wipe_write_permission(self, broker_name: str) -> dict[str, int]:
        """Topics that were changed, by name server."""
        header = WipeWritePermOfBrokerRequest(broker_name=broker_name)
        answers = await self._change_permission(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return {
            address: WipeWritePermOfBrokerReply.from_ext(ext).wipe_topic_count
            for address, ext in answers.items()
        }

    async def add_write_permission(self, broker_name: str) -> dict[str, int]:
        header = AddWritePermOfBrokerRequest(broker_name=broker_name)
        answers = await self._change_permission(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return {
            address: AddWritePermOfBrokerReply.from_ext(ext).add_topic_count
            for address, ext in answers.items()
        }

    async def _change_permission(
        self,
        code: RequestCode,
        header: WipeWritePermOfBrokerRequest | AddWritePermOfBrokerRequest,
    ) -> dict[str, dict[str, str]]:
        await self.chosen(None, header.broker_name)  # a name server says nothing of a wrong name
        addresses = sorted(self.session.names.addresses)
        answers = await together(self.session.call(one, code, header) for one in addresses)
        return {address: answer.ext for address, answer in zip(addresses, answers, strict=True)}
