"""One client's life on the wire: connections, name servers, routes, heartbeats.

A producer, consumer or Admin has a session of its own and tells it which groups it stands for.
What brokers ask in return (notices, checks, questions of administrators) comes in here and goes to
the member that is meant. Everything happens on the event loop that started the session.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from typing import TYPE_CHECKING, Final, Protocol

from firearrow.base.errors import FirearrowError
from firearrow.base.runtime import Service
from firearrow.client.errors import BrokerNotFound, ClientClosed, ConsumerMisuse, NoRoute
from firearrow.client.ids import UniqueKeys, local_ip, make_client_id, new_instance_name
from firearrow.client.namespaces import unwrap, wrap
from firearrow.client.routes import Brokers, TopicRoute, like_creation_topic
from firearrow.model.errors import ResponseCode, TopicNotFound, error_for
from firearrow.model.topic import AUTO_CREATE_TOPIC, MASTER_ID
from firearrow.net.client import RemotingClient
from firearrow.net.errors import NetworkError
from firearrow.net.router import Router
from firearrow.wire import java_json
from firearrow.wire.bodies import HeartbeatData, ProducerData, TopicRouteData
from firearrow.wire.codes import RequestCode
from firearrow.wire.command import Command, request
from firearrow.wire.headers import GetRouteInfoRequest, UnregisterClientRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firearrow.client.options import ClientOptions
    from firearrow.net.connection import Connection, Express
    from firearrow.net.router import Handler
    from firearrow.wire.bodies import ConsumerData
    from firearrow.wire.header import Header

log = logging.getLogger(__name__)

FIRST_HEARTBEAT_MS: Final = 1_000


class ConsumerMember(Protocol):
    """A consumer, as far as its session knows it."""

    def consumer_data(self) -> ConsumerData: ...

    def topics(self) -> Sequence[str]: ...

    def rebalance_soon(self) -> None:
        """Members or routes changed: share the queues out again."""
        ...


class NameServers:
    """Asks one name server after another, beginning anywhere, and stays with one that answers."""

    def __init__(self, addresses: Sequence[str], net: RemotingClient) -> None:
        self.addresses = random.sample(list(addresses), len(addresses))
        self._chosen = 0
        self._net = net

    def __str__(self) -> str:
        return ";".join(self.addresses)

    async def ask(self, command: Command, timeout_ms: int) -> Command:
        """The answer of the first server that can be reached; each is tried once."""
        failure: NetworkError | None = None
        first = self._chosen
        for step in range(len(self.addresses)):
            place = (first + step) % len(self.addresses)
            try:
                answer = await self._net.invoke(self.addresses[place], command, timeout_ms)
            except NetworkError as error:
                failure = error
            else:
                self._chosen = place
                return answer
        assert failure is not None
        raise failure


class Session(Service):
    """Connections, routes and heartbeats of one client."""

    def __init__(
        self,
        nameservers: Sequence[str],
        options: ClientOptions,
        *,
        instance_name: str = "",
        express: Express | None = None,
    ) -> None:
        super().__init__("client", options.clock)
        self.options = options
        self.pid = os.getpid()
        ip = local_ip()
        family = socket.AF_INET if len(ip) == 4 else socket.AF_INET6
        instance = options.instance_name or instance_name or new_instance_name()
        self.client_id = make_client_id(socket.inet_ntop(family, ip), instance, options.unit_name)
        self.unique_keys = UniqueKeys(ip, self.pid, options.clock)
        self.brokers = Brokers()
        self.producers: set[str] = set()
        self.consumers: dict[str, ConsumerMember] = {}
        self._handlers: dict[int, Handler] = {}
        self._routes: dict[str, TopicRoute] = {}
        self._wanted: set[str] = set()  # topics whose routes are kept fresh
        self._fetching: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._heartbeats: set[asyncio.Task[bool]] = set()  # that wait for their answer
        self._running = False
        self._net = RemotingClient(
            options.clock,
            tls=options.tls,
            on_connect=self._connected,
            express=express,
        )
        self.names = NameServers(nameservers, self._net)

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin keeping routes and heartbeats fresh; connections are made when needed."""
        self._running = True
        self._net.answer_with(Router(self._handlers, self))
        self.spawn(self._keep_routes(), name="routes")
        self.spawn(self._keep_alive(), name="heartbeats")

    def check_running(self) -> None:
        """ClientClosed unless this session can be used here and now."""
        if not self._running:
            raise ClientClosed("this client is not started, or closed already")
        if self.pid != os.getpid():
            raise ClientClosed(
                f"this client belongs to process {self.pid}; after a fork, create a new one"
            )

    @property
    def running(self) -> bool:
        return self._running

    async def stop(self) -> None:
        """Tell brokers good-bye, end all tasks, hang up."""
        if not self._running:
            return
        self._running = False
        await self.stop_tasks()
        if self._heartbeats:
            # A broker may take requests out of turn: a heartbeat that is heard after the good-bye
            # leaves a member behind that is not there, and its queues to nobody.
            await asyncio.wait(self._heartbeats)
        await self._say_goodbye()
        for fetch in list(self._fetching.values()):
            fetch.cancel()
        await asyncio.gather(*self._fetching.values(), return_exceptions=True)
        await self._net.close()

    async def _say_goodbye(self) -> None:
        groups = [
            UnregisterClientRequest(client_id=self.client_id, producer_group=self.wrap(group))
            for group in self.producers
        ] + [
            UnregisterClientRequest(client_id=self.client_id, consumer_group=self.wrap(group))
            for group in self.consumers
        ]
        calls = [
            self.call(address, RequestCode.UNREGISTER_CLIENT, header)
            for header in groups
            for _, _, address in self.brokers.all()
            if self._net.live(address) is not None
        ]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.debug("a broker did not take our leave: %s", outcome)

    # --- names ------------------------------------------------------------------------------

    def wrap(self, name: str) -> str:
        """A topic or group as it is called on the wire."""
        return wrap(self.options.namespace, name)

    def unwrap(self, name: str) -> str:
        """A topic or group as the application calls it."""
        return unwrap(self.options.namespace, name)

    # --- asking -----------------------------------------------------------------------------

    async def invoke(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request, decorated and seen by hooks; any answer is returned as it is."""
        options = self.options
        if options.plain:
            return await self._net.invoke(address, command, timeout_ms)
        for hook in options.hooks:
            hook.before_request(address, command)
        response = await self._net.invoke(address, options.decorate(command), timeout_ms)
        for hook in options.hooks:
            hook.after_response(address, command, response)
        return response

    def connection_to_master(self, broker_name: str) -> Connection | None:
        """The way to where sends go, if it is open."""
        address = self.master_address(broker_name)
        return None if address is None else self._net.live(address)

    async def invoke_oneway(self, address: str, command: Command) -> None:
        """Send a request that nobody answers."""
        for hook in self.options.hooks:
            hook.before_request(address, command)
        await self._net.invoke_oneway(address, self.options.decorate(command))

    async def call(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Command:
        """Ask, and raise what the server said when it was not yes."""
        timeout_ms = timeout_ms or self.options.call_timeout_ms
        answer = await self.invoke(address, request(code, header, body), timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark)
        return answer

    async def ask_nameserver(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> Command:
        """Ask any name server."""
        command = self.options.decorate(request(code, header, body))
        answer = await self.names.ask(command, self.options.call_timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark)
        return answer

    def master_address(self, broker_name: str) -> str | None:
        """Where to send to; the VIP port if the options say so."""
        address = self.brokers.master(broker_name)
        return vip_address(address) if address and self.options.vip_channel else address

    async def find_master(self, broker_name: str, topic: str) -> str:
        """The master's address; the route is asked for once more when it is not known."""
        address = self.master_address(broker_name)
        if address is None:
            await self.refresh_route(topic)
            address = self.master_address(broker_name)
        if address is None:
            raise BrokerNotFound(f"the master of broker {broker_name} is not known (topic {topic})")
        return address

    async def find_replica(self, broker_name: str, topic: str, wanted: int) -> tuple[str, int]:
        """The address of any member of a broker, the wanted one first; and which it is."""
        found = self.brokers.replica(broker_name, wanted)
        if found is None:
            await self.refresh_route(topic)
            found = self.brokers.replica(broker_name, wanted)
        if found is None:
            raise BrokerNotFound(f"no member of broker {broker_name} is known (topic {topic})")
        return found

    # --- routes -----------------------------------------------------------------------------

    def known_route(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic (its name on the wire), from memory or from a name server."""
        route = self._routes.get(topic) or await self.refresh_route(topic)
        if route is None:
            raise NoRoute(f"no broker serves topic {topic}, say {self.names}")
        return route

    async def publish_route(self, topic: str, *, creation_queue_nums: int) -> TopicRoute:
        """The route for sending; a topic that does not exist yet borrows that of TBW102."""
        route = self._routes.get(topic)
        if route is not None and route.publish:
            return route
        route = await self.refresh_route(topic)
        if route is None or not route.publish:
            example = await self._fetch(AUTO_CREATE_TOPIC)
            if example is None:
                raise NoRoute(
                    f"no broker serves topic {topic}, and none creates topics on first use "
                    "(autoCreateTopicEnable)"
                )
            borrowed = like_creation_topic(example, creation_queue_nums)
            route = TopicRoute.of(topic, borrowed)
            self.brokers.update(borrowed)
            self._wanted.add(topic)
            self._routes[topic] = route
        if not route.publish:
            raise NoRoute(f"no broker takes messages of topic {topic} now")
        return route

    async def refresh_route(self, topic: str) -> TopicRoute | None:
        """Ask a name server; callers that come together share one question."""
        return await asyncio.shield(self.refresh_soon(topic))

    def refresh_soon(self, topic: str) -> asyncio.Task[TopicRoute | None]:
        """The same without waiting for the answer; until then the old route is used."""
        self._wanted.add(topic)
        fetch = self._fetching.get(topic)
        if fetch is None:
            fetch = asyncio.create_task(self._refresh(topic), name=f"route-{topic}")
            self._fetching[topic] = fetch
            fetch.add_done_callback(lambda done: self._fetched(topic, done))
        return fetch

    def _fetched(self, topic: str, fetch: asyncio.Task[TopicRoute | None]) -> None:
        self._fetching.pop(topic, None)
        if not fetch.cancelled():
            fetch.exception()  # heard, also when every caller has given up by now

    async def _refresh(self, topic: str) -> TopicRoute | None:
        data = await self._fetch(topic)
        if data is None:
            return None
        route = TopicRoute.of(topic, data)
        before = self._routes.get(topic)
        self._routes[topic] = route
        self.brokers.update(route.data)
        if before is None or before.subscribe != route.subscribe:
            for consumer in self.consumers.values():
                if topic in consumer.topics():
                    consumer.rebalance_soon()
        return route

    async def _fetch(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        try:
            answer = await self.ask_nameserver(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except TopicNotFound:
            return None
        return java_json.decode(answer.body, TopicRouteData)

    def forget_route(self, topic: str) -> None:
        """What we believe about a topic proved wrong; the next use asks again."""
        self._routes.pop(topic, None)

    async def _keep_routes(self) -> None:
        while True:
            await self.clock.sleep(self.options.route_refresh_ms)
            topics = self._wanted.union(*(member.topics() for member in self.consumers.values()))
            for topic in sorted(topics):
                try:
                    await self.refresh_route(topic)
                except FirearrowError as error:
                    log.warning("the route of %s cannot be refreshed: %s", topic, error)

    # --- groups and heartbeats --------------------------------------------------------------

    def handle(self, code: RequestCode, handler: Handler) -> None:
        """Who answers when a broker asks this; before `start`."""
        self._handlers[code] = handler

    def add_consumer(self, group: str, member: ConsumerMember) -> None:
        if group in self.consumers:
            raise ConsumerMisuse(f"this session has a consumer of group {group} already")
        self.consumers[group] = member

    def _connected(self, address: str) -> None:
        """A new connection: its broker must hear who we are before it can know our groups."""
        if not self._running or not (self.producers or self.consumers):
            return
        if any(address == known for _, _, known in self.brokers.all()):
            self.spawn(self._greet(address), name=f"heartbeat-{address}")

    async def _greet(self, address: str) -> None:
        if await self._heartbeat_quietly(address):
            for consumer in self.consumers.values():
                consumer.rebalance_soon()

    async def _keep_alive(self) -> None:
        await self.clock.sleep(FIRST_HEARTBEAT_MS)
        while True:
            self.brokers.keep_only(self._routes.values())
            await self.send_heartbeats()
            await self.clock.sleep(self.options.heartbeat_ms)

    async def send_heartbeats(self) -> bool:
        """Tell every broker that we live; whether any has heard it."""
        if not self.producers and not self.consumers:
            return False
        heard = await asyncio.gather(
            *(
                self._heartbeat_quietly(address)
                for _, number, address in self.brokers.all()
                if number == MASTER_ID or self.consumers
            )
        )
        return any(heard)

    async def _heartbeat_quietly(self, address: str) -> bool:
        """Also when the caller is cancelled, `stop` waits for the answer."""
        if not self._running:
            return False
        heartbeat = asyncio.create_task(self._heartbeat(address), name=f"heartbeat-{address}")
        self._heartbeats.add(heartbeat)
        heartbeat.add_done_callback(self._heartbeats.discard)
        return await asyncio.shield(heartbeat)

    async def _heartbeat(self, address: str) -> bool:
        data = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=tuple(
                ProducerData(group_name=self.wrap(group)) for group in sorted(self.producers)
            ),
            consumer_data_set=tuple(member.consumer_data() for member in self.consumers.values()),
        )
        try:
            await self.call(address, RequestCode.HEART_BEAT, body=java_json.encode(data))
        except FirearrowError as error:
            log.warning("broker %s does not hear our heartbeat: %s", address, error)
            return False
        return True


def vip_address(address: str) -> str:
    """The port two below, which old clients send to."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"
