"""The commands: those that start servers, and `store` and `filter` with their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import firearrow
from firearrow import hot
from firearrow.base.config import Source, environment_values, load
from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.base.telemetry import set_up_logging
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.broker.ignored_keys import IGNORED_KEYS as BROKER_IGNORED_KEYS
from firearrow.cli.filter_commands import filter_app
from firearrow.cli.running import run_until_stopped
from firearrow.cli.standalone import Standalone
from firearrow.cli.store_commands import store_app
from firearrow.nameserver.config import IGNORED_KEYS, NameServerConfig
from firearrow.nameserver.server import NameServer
from firearrow.store.errors import StoreInUse
from firearrow.wire.properties_text import parse_properties

app = typer.Typer(
    name="firearrow",
    help="A message queue that speaks RocketMQ.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


app.add_typer(store_app, name="store")
app.add_typer(filter_app, name="filter")


@app.callback()
def main() -> None:
    """A message queue that speaks RocketMQ."""


@app.command()
def version() -> None:
    """Show the version, and whether the compiled code is in use."""
    typer.echo(f"firearrow {firearrow.__version__} (hot code: {hot.KIND})")


@app.command()
def nameserver(  # noqa: PLR0917 - options, all of them named on the command line
    config: Annotated[
        Path | None, typer.Option("-c", "--config", help="RocketMQ .properties file.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (bindAddress).")] = None,
    port: Annotated[
        int | None, typer.Option("-p", "--port", help="Port; 0 takes a free one (listenPort).")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("-o", help="Any setting, as key=value; repeatable.")
    ] = None,
    insecure: Annotated[  # noqa: FBT002
        bool, typer.Option("--insecure", help="Allow an address other machines can reach.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Run a name server until SIGTERM or Ctrl-C.

    [bold]Examples[/bold]

      firearrow nameserver

      firearrow nameserver -c conf/namesrv.properties --port 9877

      firearrow nameserver -o orderMessageEnable=true -o brokerExpiredMillis=30000
    """
    try:
        set_up_logging(log_level)
        settings = load(
            NameServerConfig,
            [
                *properties_file(config),
                Source("environment", environment_values(NameServerConfig, os.environ)),
                Source("command line", flag_values(option, bindAddress=host, listenPort=port)),
            ],
            ignored=IGNORED_KEYS,
        )
        server = NameServer(settings, insecure=insecure)
        run_until_stopped(
            server, ready=lambda: typer.echo(f"name server ready on {server.address}")
        )
    except ConfigError as error:
        typer.echo(f"firearrow nameserver: {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def broker(  # noqa: PLR0917 - options, all of them named on the command line
    config: Annotated[
        Path | None, typer.Option("-c", "--config", help="RocketMQ .properties file.")
    ] = None,
    nameservers: Annotated[
        str | None,
        typer.Option("-n", "--nameservers", help="host:port, several separated by ';'."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (bindAddress).")] = None,
    port: Annotated[
        int | None, typer.Option("-p", "--port", help="Port; 0 takes a free one (listenPort).")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("-o", help="Any setting, as key=value; repeatable.")
    ] = None,
    insecure: Annotated[  # noqa: FBT002
        bool, typer.Option("--insecure", help="Allow an address other machines can reach.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    [bold]Examples[/bold]

      firearrow broker -n 127.0.0.1:9876

      firearrow broker -c conf/broker.conf -n '10.0.0.1:9876;10.0.0.2:9876'

      firearrow broker -n 127.0.0.1:9876 -o brokerName=broker-b -o storePathRootDir=/data/store
    """
    try:
        set_up_logging(log_level)
        flags = flag_values(option, bindAddress=host, listenPort=port, namesrvAddr=nameservers)
        server = Broker(broker_config(config, flags), insecure=insecure)
        run_until_stopped(server, ready=lambda: typer.echo(f"broker ready on {server.address}"))
    except (ConfigError, StoreInUse) as error:
        typer.echo(f"firearrow broker: {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def up(  # noqa: PLR0917 - options, all of them named on the command line
    data: Annotated[Path, typer.Option(help="Where everything is kept.")] = Path("firearrow-data"),
    nameserver_port: Annotated[int, typer.Option(help="0 takes a free port.")] = 9876,
    broker_port: Annotated[int, typer.Option(help="0 takes a free port.")] = 10911,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    option: Annotated[
        list[str] | None,
        typer.Option("-o", help="Any setting of the broker, as key=value; repeatable."),
    ] = None,
    insecure: Annotated[  # noqa: FBT002
        bool, typer.Option("--insecure", help="Allow an address other machines can reach.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "WARNING",
) -> None:
    """Run a name server and a broker in one process, until SIGTERM or Ctrl-C.

    [bold]Examples[/bold]

      firearrow up

      firearrow up --data /var/lib/firearrow --nameserver-port 0 --broker-port 0

      firearrow up -o flushDiskType=ASYNC_FLUSH -o autoCreateTopicEnable=false
    """
    try:
        set_up_logging(log_level)
        flags = {
            "storePathRootDir": str(data / "store"),
            **flag_values(option, bindAddress=host, listenPort=broker_port),
        }
        names = NameServerConfig(
            listen_port=nameserver_port,
            bind_address=host,
            kv_config_path=data / "namesrv" / "kvConfig.json",
            config_store_path=data / "namesrv" / "namesrv.properties",
        )
        both = Standalone(names, broker_config(None, flags), insecure=insecure)
        run_until_stopped(
            both,
            ready=lambda: typer.echo(
                f"ready: name server {both.nameserver.address}, broker {both.broker.address}"
            ),
        )
    except (ConfigError, StoreInUse) as error:
        typer.echo(f"firearrow up: {error}", err=True)
        raise typer.Exit(2) from error


def broker_config(path: Path | None, flags: dict[str, str]) -> BrokerConfig:
    """A broker's settings: file, environment, command line."""
    sources = properties_file(path, path_key="brokerConfigPath")
    sources += [
        Source("environment", environment_values(BrokerConfig, os.environ)),
        Source("command line", flags),
    ]
    return load(BrokerConfig, sources, ignored=BROKER_IGNORED_KEYS)


def properties_file(path: Path | None, *, path_key: str = "configStorePath") -> list[Source]:
    """A configuration file as a source of settings; `path_key` is the setting that names it."""
    if path is None:
        return []
    try:
        values = parse_properties(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except PeerProtocolError as error:
        raise ConfigError(f"{path} is not a .properties file: {error}") from error
    # As in Apache's servers, changes by request go back to the file that the server started with.
    values[path_key] = str(path.absolute())
    return [Source(str(path), values, tolerant=True)]


def flag_values(options: list[str] | None, **named: str | int | None) -> dict[str, str]:
    """Settings from ``-o key=value`` and from flags of their own, which win."""
    values: dict[str, str] = {}
    for option in options or []:
        key, equals, value = option.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"-o {option!r}: key=value expected, as -o listenPort=9877")
        values[key.strip()] = value
    values.update({key: str(value) for key, value in named.items() if value is not None})
    return values
