"""Telling name servers who we are and which topics we have: at the start, every 30 s, on change.

A change is told by the topics that changed, as Apache's brokers do: the rest need not be written
down again, and permissions that an administrator wiped at the name server stay wiped. A name server
that failed to answer, or that we have a new connection to, may know nothing and is told all.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from firearrow.base.errors import ConfigError
from firearrow.base.runtime import time_limit
from firearrow.broker.config import BrokerRole
from firearrow.hot import crc31
from firearrow.model.errors import BrokerError, error_for
from firearrow.model.topic import MASTER_ID, PERM_READ_WRITE
from firearrow.net.client import split_address
from firearrow.net.errors import NetworkError
from firearrow.wire import bodies, headers, java_json
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from firearrow.base.runtime import Clock, Service
    from firearrow.broker.config import BrokerConfig
    from firearrow.broker.topic_table import TopicTable
    from firearrow.model.topic import TopicConfig
    from firearrow.net.client import RemotingClient
    from firearrow.net.connection import Connection

log = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_MS = 3_000
PATIENCE_MS = 3_000  # of an administrator, for name servers that do not answer


def nameserver_addresses(text: str) -> list[str]:
    """What ``a:9876;b:9876`` names; ConfigError if one of them cannot be an address."""
    addresses = [address.strip() for address in text.split(";") if address.strip()]
    for address in addresses:
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError(f"namesrvAddr: {error}") from error
    return addresses


class Registration:
    """Keeps every name server up to date. One that does not answer is tried again and again."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        client: RemotingClient,
        tasks: Service,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._client = client
        self._tasks = tasks
        self._clock = clock
        self._nameservers = nameserver_addresses(config.namesrv_addr)
        self._leaving = False
        self._failing: set[str] = set()
        self._wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        # By name server: topics of whose change it has not heard yet; None: it must hear of all.
        self._owed: dict[str, set[str] | None] = dict.fromkeys(self._nameservers)
        self._told_over: dict[str, Connection] = {}
        self._whole: tuple[object, bytes] = (None, b"")  # the whole table in writing, and of when
        self.address = ""
        self.ha_address = ""
        # Where a slave's master is, and its HA port, whenever a name server says so.
        self.on_master: Callable[[str, str], None] = lambda _address, _ha_address: None

    async def start(self, address: str, ha_address: str) -> None:
        """Register once, then keep registering in the background."""
        self.address, self.ha_address = address, ha_address
        await self.register()
        self._tasks.spawn(self._keep_registered(), name="register")

    async def _keep_registered(self) -> None:
        period_ms = self._config.register_name_server_period
        while True:
            timer = self._clock.call_later(period_ms, self._wanted.set)
            await self._wanted.wait()
            timer.cancel()
            self._wanted.clear()
            waiting, self._waiting = self._waiting, []
            await self.register()
            for told in waiting:
                if not told.done():
                    told.set_result(None)

    async def registered(self) -> None:
        """Return when name servers know the topics as they are now, or do not answer in time.

        Callers that come together share one registration.
        """
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(told)
        self._wanted.set()
        try:
            async with time_limit(self._clock, PATIENCE_MS):
                await told
        except TimeoutError:
            log.warning("not every name server has heard of the topics yet; they will be told")

    @property
    def obstacle(self) -> str:
        """Why clients may not find this broker; empty if some name server knows it."""
        if not self._nameservers:
            return ""  # it was told of none: clients find it by its address
        if len(self._failing) < len(self._nameservers) and self._told_over:
            return ""
        return f"no name server knows this broker: {', '.join(self._nameservers)} do not answer"

    def register_soon(self, topic: str) -> None:
        """A topic changed, or is gone, and clients will ask name servers for it."""
        for owed in self._owed.values():
            if owed is not None:
                owed.add(topic)
        self._wanted.set()

    def register_anew(self) -> None:
        """What is told of every topic has changed."""
        self._owed = dict.fromkeys(self._nameservers)
        self._wanted.set()

    def ask_again(self) -> None:
        """Hear from name servers what they know, at once."""
        self._wanted.set()

    async def register(self) -> None:
        """Tell every name server what it must hear; returns when all have answered or failed."""
        config = self._config
        has_no_role = config.broker_role is BrokerRole.SLAVE and config.broker_id == MASTER_ID
        if self._leaving or has_no_role:  # a controller has not yet said who we are
            return
        await asyncio.gather(*(self._register_at(address) for address in self._nameservers))

    async def _register_at(self, nameserver: str) -> None:
        owed, self._owed[nameserver] = self._owed[nameserver], set()
        some = False
        try:
            connection = await self._client.connection(nameserver)
            some = bool(owed) and self._told_over.get(nameserver) is connection
            body = self._body(owed) if owed and some else self._whole_body()
            command = request(RequestCode.REGISTER_BROKER, self._header(body), body)
            reply = await connection.invoke(command, self._config.register_broker_timeout_mills)
            if reply.code:
                raise error_for(reply.code, reply.remark)
        except (NetworkError, BrokerError, OSError) as error:
            self._owed[nameserver] = None
            if some:
                self._wanted.set()  # it may have forgotten us: tell it all, and at once
            elif nameserver not in self._failing:
                self._failing.add(nameserver)
                log.warning("cannot register with name server %s: %s", nameserver, error)
            return
        self._told_over[nameserver] = connection
        if self._config.broker_id != MASTER_ID:
            said = headers.RegisterBrokerReply.from_ext(reply.ext)
            if said.master_addr and said.ha_server_addr:
                self.on_master(said.master_addr, said.ha_server_addr)
        if nameserver in self._failing:
            log.info("registered with name server %s again", nameserver)
            self._failing.discard(nameserver)

    def _header(self, body: bytes) -> headers.RegisterBrokerRequest:
        config = self._config
        return headers.RegisterBrokerRequest(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self.ha_address,
            broker_id=config.broker_id,
            enable_acting_master=False,
            compressed=False,
            body_crc32=crc31(body),
        )

    def _whole_body(self) -> bytes:
        """All topics. Twenty thousand take a tenth of a second to write, so it is not done anew
        every half a minute.
        """  # noqa: D205 - one thought
        state = (self._topics.version, self._config.broker_permission)
        if self._whole[0] != state:
            self._whole = (state, self._body(self._topics.all()))
        return self._whole[1]

    def _body(self, names: Iterable[str]) -> bytes:
        wrapper = bodies.TopicConfigSerializeWrapper(
            data_version=self._topics.version, topic_config_table=self._announced(names)
        )
        return java_json.encode(bodies.RegisterBrokerBody(topic_config_serialize_wrapper=wrapper))

    def _announced(self, names: Iterable[str]) -> dict[str, TopicConfig]:
        """Topics as clients may use them: what the broker forbids, none of them allows."""
        allowed = self._config.broker_permission
        topics = {name: topic for name in names if (topic := self._topics.get(name)) is not None}
        if allowed & PERM_READ_WRITE == PERM_READ_WRITE:
            return topics
        return {
            name: msgspec.structs.replace(topic, perm=topic.perm & allowed)
            for name, topic in topics.items()
        }

    async def route(self, topic: str) -> bodies.TopicRouteData | None:
        """Where a topic is, by the first name server that answers; None if none does."""
        for nameserver in self._nameservers:
            asking = request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.GetRouteInfoRequest(topic=topic)
            )
            try:
                reply = await self._client.invoke(nameserver, asking, PATIENCE_MS)
                if reply.code == 0:
                    return java_json.decode(reply.body, bodies.TopicRouteData)
            except (NetworkError, OSError, java_json.JavaJsonError) as error:
                log.info("name server %s does not tell routes: %s", nameserver, error)
        return None

    async def members(self, cluster: str, broker_name: str) -> dict[int, str]:
        """Addresses by id of those who share a broker name, by the first name server that says."""
        header = headers.GetBrokerMemberGroupRequest(cluster_name=cluster, broker_name=broker_name)
        for nameserver in self._nameservers:
            asking = request(RequestCode.GET_BROKER_MEMBER_GROUP, header)
            try:
                reply = await self._client.invoke(nameserver, asking, PATIENCE_MS)
                if reply.code == 0:
                    said = java_json.decode(reply.body, bodies.BrokerMemberGroupBody)
                    group = said.broker_member_group
                    return {} if group is None else dict(group.broker_addrs)
            except (NetworkError, OSError, java_json.JavaJsonError) as error:
                log.info("name server %s does not tell members: %s", nameserver, error)
        return {}

    def reconfigure(self, config: BrokerConfig) -> None:
        """Announce by these settings from now on. Addresses do not change."""
        self._config = config

    async def unregister(self) -> None:
        """Say goodbye, so that clients look elsewhere at once; nothing is registered after it."""
        self._leaving = True
        config = self._config
        header = headers.UnregisterBrokerRequest(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )

        async def leave(nameserver: str) -> None:
            command = request(RequestCode.UNREGISTER_BROKER, header)
            try:
                await self._client.invoke(nameserver, command, UNREGISTER_TIMEOUT_MS)
            except (NetworkError, OSError) as error:
                log.info("name server %s does not hear our goodbye: %s", nameserver, error)

        if self.address:
            await asyncio.gather(
                *(leave(address) for address in self._nameservers if address not in self._failing)
            )
