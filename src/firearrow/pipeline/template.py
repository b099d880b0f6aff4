"""The small working project that `firearrow pipeline init` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.base.errors import ConfigError
from firearrow.pipeline.project import PROJECT_FILE

if TYPE_CHECKING:
    from pathlib import Path

_PROJECT: Final = """\
# firearrow pipeline dry-run    shows what would happen
# firearrow pipeline run        does it; started again, it goes on where it was
# firearrow pipeline status     says how far it is
name: {name}
nameservers: ${{NAMESRV_ADDR:-127.0.0.1:9876}}
trigger: available-now        # or: {{every: 10s}}, which goes on until Ctrl-C

sources:
  orders:
    topic: orders
    body: json                # every other way: text, binary
    schema: id bigint, customer string, amount double, at timestamp
    watermark: {{column: at, delay: 10 minutes}}

steps:
  valid:
    python: steps.py:valid    # a function from tables to a table
    inputs: orders
  by_minute:
    sql: |
      SELECT window.start AS minute, count(*) AS orders, round(sum(amount), 2) AS amount
      FROM valid GROUP BY window(at, '1 minute')

sinks:
  archive:
    from: valid
    parquet: out/orders       # every row once, whatever happens
    partition_by: day
  screen:
    from: by_minute
    console: true
    mode: update
"""

_STEPS: Final = '''\
"""Steps in Python: each function gets the tables that its step names, and returns one."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def valid(orders: DataFrame) -> DataFrame:
    """Orders that can be counted, with their day."""
    return orders.where("id IS NOT NULL AND amount > 0").withColumn("day", f.to_date("at"))
'''

_PRODUCE: Final = '''\
"""Send some orders to try the pipeline with: python produce.py"""

import json
import os
from datetime import UTC, datetime, timedelta

from firearrow import Message, Producer

nameservers = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
now = datetime.now(UTC)
with Producer("orders-service", nameservers=nameservers) as producer:
    for number in range(100):
        order = {
            "id": number,
            "customer": f"customer-{number % 7}",
            "amount": number * 1.5,
            "at": (now + timedelta(seconds=number)).isoformat(),
        }
        producer.send(Message("orders", json.dumps(order), keys=f"order-{number}"))
print("100 orders sent")
'''


def write_template(folder: Path, name: str) -> list[Path]:
    """Write the project; what is there already stays, and is an error."""
    files = {
        PROJECT_FILE: _PROJECT.format(name=name),
        "steps.py": _STEPS,
        "produce.py": _PRODUCE,
        ".gitignore": ".firearrow/\nout/\n",
    }
    there = [file for file in files if (folder / file).exists()]
    if there:
        raise ConfigError(f"{folder / there[0]} is there already; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_text(content, "utf-8")
    return [folder / file for file in files]
