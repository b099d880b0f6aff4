"""`firearrow bench`: load a cluster from here, with percentiles and a word on what limited it."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firearrow.cli import bench_load
from firearrow.cli.arguments import TopicName  # noqa: TC001 - typer reads it
from firearrow.cli.output import OutputFormat, Record, print_shown
from firearrow.cli.running import loop_factory
from firearrow.cli.verbs import DryRun, Output, verb
from firearrow.client.errors import NoRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from firearrow.cli.bench_load import Load, Outcome
    from firearrow.cli.target import Target

bench_app = typer.Typer(
    name="bench",
    help="Load a cluster from here and see what limits it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Count = Annotated[int, typer.Option("-c", "--count", min=1, max=100_000_000, help="Messages.")]


@verb(bench_app, "send")
def send(
    target: Target,
    *,
    topic: TopicName,
    count: Count = 10_000,
    size: Annotated[int, typer.Option("--size", min=1, max=4 << 20, help="Bytes each.")] = 1024,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, max=2048, help="Sent before any answer came.")
    ] = 64,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.1, help="Messages a second; else all it can.")
    ] = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> int | None:
    """Send messages as fast as it goes, or at a rate; the topic is made if it is not there.

    [bold]Examples[/bold]

      firearrow bench send bench-topic

      firearrow bench send bench-topic --count 100000 --size 100 --in-flight 512

      firearrow bench send bench-topic --rate 1000 --output json
    """
    load = bench_load.Load(
        topic=topic, count=count, size=size, in_flight=in_flight, per_second=rate
    )
    if dry_run:
        typer.echo(f"would send {count:,} messages, {count * size:,} bytes, to topic {topic}")
        return None
    try:
        target.admin.topic_config(topic)
    except NoRoute:
        target.admin.create_topic(topic)
    outcome = _run(bench_load.send, load, target, "sending")
    return _report(target, load, outcome, output, "sent")


@verb(bench_app, "consume")
def consume(
    target: Target,
    *,
    topic: TopicName,
    count: Count = 10_000,
    output: Output = OutputFormat.TABLE,
) -> int | None:
    """Read a topic from its beginning, as fast as it goes. No group is moved by it.

    [bold]Examples[/bold]

      firearrow bench consume bench-topic --count 100000
    """
    load = bench_load.Load(topic=topic, count=count)
    outcome = _run(bench_load.consume, load, target, "consuming")
    return _report(target, load, outcome, output, "consumed")


def _run(
    work: Callable[..., Coroutine[Any, Any, Outcome]], load: Load, target: Target, what: str
) -> Outcome:
    with (
        _progress(what, load.count) as tick,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        return runner.run(work(load, target.nameservers, target.options, tick))


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal."""
    from rich.console import Console  # noqa: PLC0415 - 0.1 s, for a terminal only
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, advance=done)


def _report(
    target: Target, load: Load, outcome: Outcome, form: OutputFormat, what: str
) -> int | None:
    route = target.admin.topic_route(load.topic)
    settings = target.admin.broker_config(route.broker_datas[0].broker_name)
    values: dict[str, Any] = {
        what: outcome.messages,
        "failed": outcome.failed,
        "seconds": round(outcome.wall_s, 3),
        "per_second": round(outcome.per_second, 1),
        "megabytes_per_second": round(outcome.body_bytes / max(outcome.wall_s, 1e-9) / 1e6, 2),
    }
    for share in bench_load.PERCENTILES:
        found = outcome.percentile(share)
        values[f"p{share:g}_millis"] = None if found is None else round(found, 3)
    values["client_cores"] = round(outcome.cpu_share, 2)
    values["limit"] = bench_load.hint(outcome, settings, paced=load.per_second is not None)
    print_shown(Record(values), form)
    return 1 if outcome.failed or outcome.messages == 0 else None
