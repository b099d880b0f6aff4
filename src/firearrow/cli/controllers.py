"""Asking controllers: where they are, who of them leads, what they know about replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.base.errors import ConfigError, FirearrowError
from firearrow.client.errors import BrokerNotFound
from firearrow.wire import java_json
from firearrow.wire.bodies.controller import BrokerReplicasInfo
from firearrow.wire.codes import RequestCode
from firearrow.wire.headers import controller as headers

if TYPE_CHECKING:
    from collections.abc import Collection

    from firearrow.cli.target import Target
    from firearrow.client.blocking_admin import Admin
    from firearrow.wire.bodies.controller import ReplicasInfo


def addresses(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


def metadata(admin: Admin, controller: str) -> headers.GetControllerMetadataReply:
    """What one controller says of itself and of who leads."""
    reply = admin.request(controller, RequestCode.CONTROLLER_GET_METADATA_INFO)
    return headers.GetControllerMetadataReply.from_ext(reply.ext)


def leader(admin: Admin, controllers: Collection[str]) -> str:
    """The controller that leads, as any of these has it."""
    if not controllers:
        raise ConfigError("no controller is named: --controller HOST:PORT")
    failure: FirearrowError | None = None
    for address in controllers:
        try:
            found = metadata(admin, address).controller_leader_address
        except FirearrowError as error:
            failure = error
            continue
        if found:
            return found
    if failure is not None:
        raise failure
    raise BrokerNotFound(f"no controller leads at the moment, say {'; '.join(controllers)}")


def of_brokers(target: Target, broker: str | None = None) -> list[str]:
    """The controllers that brokers have in their settings."""
    members = [one for one in target.admin.brokers() if broker in {None, one.name, one.address}]
    if broker is not None and not members:
        raise BrokerNotFound(f"there is no broker {broker}; name the controller: --controller")
    found: list[str] = []
    for one in members:
        if one.error is None:
            settings = target.admin.broker_config(one.address)
            if settings.get("enableControllerMode") == "true":
                found += addresses(settings.get("controllerAddr", ""))
    if not found:
        which = "no broker has" if broker is None else f"broker {broker} does not have"
        raise ConfigError(
            f"{which} a controller (enableControllerMode); if one is away, name it: --controller"
        )
    return list(dict.fromkeys(found))


def replicas(admin: Admin, leading: str, names: Collection[str]) -> dict[str, ReplicasInfo]:
    """What the leading controller knows of these brokers; who is unknown is left out."""
    body = java_json.encode(sorted(names))
    reply = admin.request(leading, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
    return java_json.decode(reply.body, BrokerReplicasInfo).replicas_info_table
