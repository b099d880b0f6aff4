"""A live cluster with real traffic and a console over it, in processes as a user starts them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final, Self

from firearrow import (
    Admin,
    Message,
    Producer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from firearrow.aio import ConsumeFromWhere

from .cache import cannot_run, locked
from .processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from firearrow import ReceivedMessage

CHROMIUM: Final = "/usr/bin/chromium"
CHROMIUM_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PASSWORDS: Final = {
    "vera": ("viewer", "vera-looks-only"),
    "otto": ("operator", "otto-operates-it"),
    "anna": ("admin", "anna-administers"),
}
PATIENCE_S: Final = 60.0
SPARK_S: Final = 240.0
PIPELINE: Final = """
name: archive-orders
trigger: {every: 2s}
spark: {master: "local[1]", conf: {spark.ui.enabled: false}}
sources:
  orders:
    topic: [orders]
    starting: earliest
    body: json
    schema: amount double
    options: {group: archive-pipeline}
steps:
  priced: {sql: "SELECT _tags AS tag, _stored AS stored, amount FROM orders"}
sinks:
  table: {from: priced, parquet: out/orders}
"""


def require_chromium(folder: Path) -> str:
    """Debian's browser, fetched by name if it is not there; else the test cannot run."""
    found = shutil.which("chromium") or CHROMIUM
    if not shutil.which(found):
        with locked(folder / "chromium.lock"):
            if not shutil.which(found) and os.geteuid() == 0 and shutil.which("apt-get"):
                names = ["chromium", "fonts-noto-cjk"]
                for command in (["update"], ["install", "-y", "--no-install-recommends", *names]):
                    subprocess.run(
                        ["apt-get", *command],
                        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                        capture_output=True,
                        check=False,
                        timeout=600,
                    )
    if not shutil.which(found):
        cannot_run("there is no Chromium: install Debian's package `chromium`")
    return found


class Site:
    """`firearrow up` with a console, its users, and clients that keep it busy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self._clients = contextlib.ExitStack()
        self._ending = threading.Event()
        self._sender: threading.Thread | None = None
        self._pipeline: subprocess.Popen[bytes] | None = None
        self.life_id = ""  # a message that was sent and consumed with traces

    def __enter__(self) -> Self:
        project = self.folder / "project"
        project.mkdir()
        for name, (role, password) in PASSWORDS.items():
            command = [sys.executable, "-m", "firearrow", "console", "--data"]
            command += [str(project / "firearrow-data" / "console"), "user", "add", name]
            subprocess.run(
                [*command, "--role", role, "--password-stdin"],
                input=password + "\n",
                text=True,
                check=True,
                capture_output=True,
            )
        command = [sys.executable, "-m", "firearrow", "up", "--nameserver-port", "0"]
        command += ["--broker-port", "0", "--console-port", "0"]
        command += ["-o", "recallMessageEnable=true", "-o", "traceTopicEnable=true"]
        with self.log.open("wb") as log:
            self._up = subprocess.Popen(
                command, cwd=project, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            assert self._up.stdout is not None
            line = self._up.stdout.readline()
            found = re.fullmatch(
                r"ready: name server (\S+), broker (\S+), console (http://\S+)\n", line
            )
            assert found is not None, line + self.log.read_text()
            self.nameserver, self.broker, self.url = found.groups()
            self._make_traffic()
            self._run_pipeline(project)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        if self._sender is not None:
            self._sender.join()
        if self._pipeline is not None:
            self._pipeline.terminate()
            self._pipeline.wait(SPARK_S)
        self._clients.close()
        self._up.terminate()
        try:
            assert self._up.wait(30) == 0
        finally:
            self._up.kill()
            self._up.communicate()

    # --- traffic ----------------------------------------------------------------------------

    def _consumer(self, group: str, topic: str, expression: str, *, fails: bool = False) -> None:
        consumer = self._clients.enter_context(
            PushConsumer(
                group,
                nameservers=self.nameserver,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                trace=True,
                max_reconsume_times=0 if fails else 16,
            )
        )

        @consumer.subscribe(topic, expression)
        def handle(message: ReceivedMessage) -> None:
            if fails:
                raise ValueError(f"cannot refund {message.text}")

    def _make_traffic(self) -> None:
        admin = self._clients.enter_context(Admin(nameservers=self.nameserver))
        self.admin = admin
        for topic, queues in (("orders", 4), ("refunds", 2), ("parcels", 2), ("reports", 1)):
            admin.create_topic(topic, queues=queues)
        admin.create_group("refunding", retry_max_times=0)
        admin.create_group("auditing")
        producer = self._clients.enter_context(
            Producer("shop", nameservers=self.nameserver, trace=True)
        )
        self.producer = producer
        self._consumer("billing", "orders", "*")
        self._consumer("billing", "orders", "*")
        self._consumer("refunding", "refunds", "*", fails=True)
        self._consumer("shipping", "parcels", "large")  # two members that disagree
        self._consumer("shipping", "parcels", "small")
        for number in range(60):
            body = json.dumps({"order": number, "amount": 9.5 * number, "火箭": "yes"})
            receipt = producer.send(
                Message("orders", body, tags="paid" if number % 2 else "open", keys=f"o-{number}")
            )
            if number == 7:
                self.life_id = receipt.offset_msg_id
        for number in range(5):
            producer.send(Message("refunds", f"refund {number}", keys=f"r-{number}"))
            producer.send(Message("parcels", f"parcel {number}", tags="large"))
            producer.send(Message("reports", f"later {number}", delay_ms=3_600_000 + number))
        payers = self._clients.enter_context(
            TransactionProducer(
                "payers", nameservers=self.nameserver, check=lambda _: TransactionState.UNKNOWN
            )
        )
        waits = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}
        payers.send_in_transaction(
            Message("orders", "half", properties=waits), lambda _: TransactionState.UNKNOWN
        )
        wait_until(
            lambda: sum(1 for _ in admin.dlq_messages("refunding")) == 5,
            timeout_s=PATIENCE_S,
            what="five dead letters",
        )
        wait_until(
            lambda: admin.group_lag("billing").total == 0, timeout_s=PATIENCE_S, what="no lag"
        )
        self._sender = threading.Thread(target=self._keep_sending)
        self._sender.start()

    def _keep_sending(self) -> None:
        """A few messages a second, so that rates and plots have something to show."""
        number = 0
        while not self._ending.wait(0.1):
            number += 1
            self.producer.send(Message("orders", f"live {number}", tags="live"))

    def _run_pipeline(self, project: Path) -> None:
        """A pipeline of a user, on Spark. It takes a while to start; `archived` follows it."""
        (project / "pipeline.yaml").write_text(f"nameservers: {self.nameserver}{PIPELINE}", "utf-8")
        self._status = project / ".firearrow" / "status.json"
        command = [sys.executable, "-m", "firearrow", "pipeline", "run", str(project), "--quiet"]
        with (self.folder / "pipeline.log").open("wb") as log:
            self._pipeline = subprocess.Popen(command, stdout=log, stderr=log)

    def archived(self) -> int:
        """How many rows the pipeline has written by now."""
        assert self._pipeline is not None
        assert self._pipeline.poll() is None, (self.folder / "pipeline.log").read_text()
        if not self._status.exists():
            return 0
        return sum(int(one["rows"]) for one in json.loads(self._status.read_bytes())["streams"])
