"""`firearrow controller`, and a controller beside a name server."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from firearrow.base.config import Source, environment_values, key_of, load
from firearrow.base.errors import ConfigError
from firearrow.base.telemetry import set_up_logging
from firearrow.cli.running import run_until_stopped
from firearrow.cli.settings import flag_values, properties_file
from firearrow.controller.config import IGNORED_KEYS, ControllerConfig
from firearrow.controller.server import Controller
from firearrow.nameserver.config import NameServerConfig

if TYPE_CHECKING:
    from firearrow.nameserver.server import NameServer


def controller(  # noqa: PLR0917 - options, all of them named on the command line
    config: Annotated[
        Path | None, typer.Option("-c", "--config", help="RocketMQ .properties file.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (bindAddress).")] = None,
    port: Annotated[
        int | None, typer.Option("-p", "--port", help="Port; 0 takes a free one (listenPort).")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where decisions are kept (controllerStorePath).")
    ] = None,
    etcd: Annotated[
        str | None,
        typer.Option(help="Members of an etcd that controllers share (controllerEtcdEndpoints)."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("-o", help="Any setting, as key=value; repeatable.")
    ] = None,
    insecure: Annotated[  # noqa: FBT002
        bool, typer.Option("--insecure", help="Allow an address other machines can reach.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Run a controller, which elects masters, until SIGTERM or Ctrl-C.

    [bold]Examples[/bold]

      firearrow controller --data /var/lib/firearrow/controller

      firearrow controller -c conf/controller.conf --port 9878

      firearrow controller -o enableElectUncleanMaster=true --port 0

      firearrow controller --etcd '127.0.0.1:2379' -o controllerDLegerSelfId=n1
    """
    try:
        set_up_logging(log_level)
        flags = flag_values(
            option,
            bindAddress=host,
            listenPort=port,
            controllerStorePath=data,
            controllerEtcdEndpoints=etcd,
        )
        server = Controller(controller_config(config, flags), insecure=insecure)
        run_until_stopped(server, ready=lambda: typer.echo(f"controller ready on {server.address}"))
    except ConfigError as error:
        typer.echo(f"firearrow controller: {error}", err=True)
        raise typer.Exit(2) from error


def controller_config(path: Path | None, flags: dict[str, str]) -> ControllerConfig:
    """A controller's settings: file, environment, command line."""
    sources = [
        *properties_file(path),
        Source("environment", environment_values(ControllerConfig, os.environ)),
        Source("command line", flags),
    ]
    return load(ControllerConfig, sources, ignored=IGNORED_KEYS)


def keys_of_controllers() -> frozenset[str]:
    """What a name server's file may hold for the controller in its process."""
    return IGNORED_KEYS | {key_of(field) for field in dataclasses.fields(ControllerConfig)}


def controller_beside(
    nameserver: NameServer, path: Path | None, options: dict[str, str], *, insecure: bool
) -> NameServerWithController:
    """A name server with the controller that its own file describes (enableControllerInNamesrv).

    Both read one file; a key that both have is the name server's. As in Apache's, the port of the
    controller is that of its entry in controllerDLegerPeers.
    """
    shared = {key_of(field) for field in dataclasses.fields(NameServerConfig)}
    own = keys_of_controllers() - shared
    sources = [
        dataclasses.replace(source, values={k: v for k, v in source.values.items() if k in own})
        for source in [*properties_file(path), Source("command line", options)]
    ]
    return NameServerWithController(
        nameserver, Controller(load(ControllerConfig, sources, ignored=own), insecure=insecure)
    )


class NameServerWithController:
    """Both in one process (enableControllerInNamesrv), each on a port of its own."""

    def __init__(self, nameserver: NameServer, controller: Controller) -> None:
        self.nameserver = nameserver
        self.controller = controller

    async def start(self) -> None:
        await self.nameserver.start()
        try:
            await self.controller.start()
        except BaseException:
            await self.nameserver.stop()
            raise

    async def stop(self) -> None:
        await self.controller.stop()
        await self.nameserver.stop()
