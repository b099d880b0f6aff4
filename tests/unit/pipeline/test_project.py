"""Project files: what is read from them, and how mistakes in them are named."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from firearrow.base.errors import ConfigError
from firearrow.pipeline.project import (
    Body,
    Project,
    SinkKind,
    SourceKind,
    Watermark,
    load_project,
    project_of,
)
from firearrow.pipeline.project_yaml import parse
from firearrow.pipeline.template import write_template

WHOLE = """
    name: shop
    nameservers: ${SERVERS}
    trigger: {every: 10s}
    spark:
      master: local[2]
      conf: {spark.sql.shuffle.partitions: 2, spark.ui.enabled: false}
    sources:
      orders:
        topic: [orders, returns]
        starting: 2026-11-18T10:00
        body: json
        schema: id bigint, at timestamp
        watermark: {column: at, delay: 10 minutes}
        options: {maxOffsetsPerTrigger: 1000}
      customers: {parquet: data/customers}
    steps:
      named: {sql: SELECT * FROM orders JOIN customers USING (id)}
      checked: {python: steps.py:check, inputs: named}
    sinks:
      table: {from: checked, parquet: out/named, partition_by: [day, hour]}
      alerts: {from: checked, topic: alerts, options: {delivery: at-least-once}}
"""


def project(text: str, **environ: str) -> Project:
    return project_of(parse(textwrap.dedent(text), "pipeline.yaml", environ), Path("/shop"))


def test_a_project_says_what_its_file_says() -> None:
    read = project(WHOLE, SERVERS="127.0.0.1:9876")
    assert (read.name, read.nameservers, read.every_ms) == ("shop", "127.0.0.1:9876", 10_000)
    assert read.master == "local[2]"
    assert read.conf == {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    orders, customers = read.sources
    assert (orders.kind, orders.target) == (SourceKind.TOPIC, ("orders", "returns"))
    assert (orders.body, orders.starting) == (Body.JSON, "2026-11-18T10:00")
    assert orders.watermark == Watermark("at", "10 minutes")
    assert orders.options == {"maxOffsetsPerTrigger": "1000"}
    assert orders.stream
    assert not customers.stream, "a directory is a table unless it says stream: true"
    assert [step.inputs for step in read.steps] == [(), ("named",)]
    table, alerts = read.sinks
    assert (table.kind, table.partition_by) == (SinkKind.PARQUET, ("day", "hour"))
    assert (alerts.target, alerts.options) == ("alerts", {"delivery": "at-least-once"})
    assert read.checkpoint == Path("/shop/.firearrow/checkpoint")


def test_a_variable_may_have_a_default() -> None:
    text = WHOLE.replace("${SERVERS}", "${SERVERS:-localhost:9876}")
    assert project(text).nameservers == "localhost:9876"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("sources:", "sorces:", r"line 8, sorces: nothing is called 'sorces' here .*'sources'"),
        ("starting:", "startin:", r"line 11, sources\.orders\.startin: .* mean 'starting'"),
        ("body: json", "body: jason", r"line 12, .*'jason' is not known here .* mean 'json'"),
        ("schema: id bigint, at timestamp", "", r"line 9, sources\.orders: body: json needs a"),
        ("delay: 10 minutes", "dely: 10", r"line 14, .*\.dely: .* mean 'delay'"),
        ("topic: [orders, returns]", "", r"line 9, .*exactly one of topic, parquet, commitlog"),
        ("from: checked, parquet", "from: cheked, parquet", r"line 21, .*no 'cheked'.*'checked'"),
        ("inputs: named", "inputs: nmed", r"line 19, steps\.checked: there is no 'nmed'"),
        ("steps.py:check", "steps.check", r"line 19, .*file\.py:function expected"),
        (", inputs: named", "", r"inputs is missing"),
        ("every: 10s", "every: soon", r"line 4, trigger\.every: 'soon': a time such as"),
        ("{every: 10s}", "now", r"line 4, trigger: available-now, or every: 10s expected"),
        ("topic: alerts,", "topic: alerts, jdbc: x,", r"exactly one of .*found: topic, jdbc"),
        ("topic: alerts,", "jdbc: x,", r"jdbc needs options: \{dbtable"),
        ("partition_by: [day, hour]", "mode: complete", r"parquet only grows"),
        ("      named:", "      na-med:", r"'na-med' cannot be used in SQL"),
        ("      named:", "      orders:", r"orders is there already"),
        ("name: shop", "name: [shop]", r"line 2, name: a text expected"),
        ("    name: shop\n", "", r"line 2: name is missing"),
        ("master: local[2]", "master: {}", r"line 6, spark\.master: a text expected"),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, error: str) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError, match=error):
        project(WHOLE.replace(old, new, 1), SERVERS="x")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [", r"line 1: not YAML"),
        ("", "is empty"),
        ("a: 1\na: 2", "line 2: a is there twice"),
        ("name: ${NOWHERE}", r"line 1, name: \$\{NOWHERE\} is not set"),
        ("just words", "names with values expected"),
        (": ".join("abcdefghijklmnopq"), "not YAML"),
        ("{a: " * 20 + "1" + "}" * 20, "nested deeper than"),
    ],
)
def test_what_is_no_project_is_refused(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        project(text)


def test_a_file_that_is_not_there_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="firearrow pipeline init"):
        load_project(tmp_path)
    (tmp_path / "pipeline.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_project(tmp_path)


def test_the_template_is_a_project(tmp_path: Path) -> None:
    written = write_template(tmp_path / "orders", "orders")
    read = load_project(tmp_path / "orders", {})
    assert read.nameservers == "127.0.0.1:9876"
    assert [sink.name for sink in read.sinks] == ["archive", "screen"]
    steps: dict[str, Any] = {}
    exec((tmp_path / "orders/steps.py").read_text("utf-8"), steps)
    assert callable(steps["valid"])
    assert len(written) == 4


def test_the_template_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("mine")
    with pytest.raises(ConfigError, match=r"steps\.py is there already"):
        write_template(tmp_path, "orders")
    assert [path.name for path in tmp_path.iterdir()] == ["steps.py"]
