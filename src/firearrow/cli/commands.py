"""The commands that start servers; `root.py` lists these and all others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import firearrow
from firearrow import hot
from firearrow.base.config import Source, environment_values, load
from firearrow.base.errors import ConfigError
from firearrow.base.telemetry import set_up_logging
from firearrow.broker.broker import Broker
from firearrow.broker.config import BrokerConfig
from firearrow.broker.ignored_keys import IGNORED_KEYS as BROKER_IGNORED_KEYS
from firearrow.cli.console_process import ConsoleProcess, console_port
from firearrow.cli.controller_commands import controller, controller_beside, keys_of_controllers
from firearrow.cli.running import Role, run_until_stopped
from firearrow.cli.settings import flag_values, properties_file
from firearrow.cli.standalone import Standalone, ready_line, with_metrics
from firearrow.nameserver.config import IGNORED_KEYS, NameServerConfig
from firearrow.nameserver.server import NameServer
from firearrow.store.errors import StoreInUse

app = typer.Typer(
    name="firearrow",
    help="A message queue that speaks RocketMQ.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


app.command()(controller)


@app.callback()
def main() -> None:
    """A message queue that speaks RocketMQ."""


@app.command()
def version() -> None:
    """Show the version, and whether the compiled code is in use.

    [bold]Example[/bold]

      firearrow version
    """
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
            ignored=IGNORED_KEYS | keys_of_controllers(),
        )
        server = NameServer(settings, insecure=insecure)
        role: Role = server
        if settings.enable_controller_in_namesrv:
            role = controller_beside(server, config, flag_values(option), insecure=insecure)
        run_until_stopped(role, ready=lambda: typer.echo(f"name server ready on {server.address}"))
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
    wanted_console_port: Annotated[
        int | None,
        typer.Option(
            "--console-port", help="Web console; 8080 if the other ports are as usual. 0: free."
        ),
    ] = None,
    no_console: Annotated[  # noqa: FBT002
        bool, typer.Option("--no-console", help="Without the web console.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="Serve the broker's metrics here, the name server's one above; 0: free."),
    ] = None,
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

      firearrow up --data /var/lib/firearrow --nameserver-port 0 --broker-port 0 --console-port 0

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
        names, settings = with_metrics(names, broker_config(None, flags), metrics_port)
        where = console_port(wanted_console_port, nameserver_port, broker_port, off=no_console)
        console = None
        if where is not None:
            console = ConsoleProcess(host, where, data / "console", insecure=insecure)
        both = Standalone(names, settings, insecure=insecure, console=console)
        run_until_stopped(
            both,
            ready=lambda: typer.echo(ready_line(both)),
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
