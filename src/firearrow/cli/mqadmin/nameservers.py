"""mqadmin on name servers: settings, key-value settings, which brokers are written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.cli.mqadmin.flags import flag
from firearrow.cli.mqadmin.run import Command

if TYPE_CHECKING:
    from firearrow.cli.mqadmin.run import Run

NAMESPACE: Final = flag("s! namespace", "The namespace.")
KEY: Final = flag("k! key", "The key.")
VALUE: Final = flag("v! value", "The value.")
BROKER: Final = flag("b! brokerName", "The broker's name.")


def get_namesrv_config(run: Run) -> None:
    for address, settings in run.admin.nameserver_config().items():
        run.out(f"============{address}============")
        for key, value in settings.items():
            run.out(f"{key:<50}=  {value}")


def update_namesrv_config(run: Run) -> None:
    key, value = run.given.text("k"), run.given.text("v")
    run.admin.update_nameserver_config({key: value})
    servers = run.target.nameservers.split(";") if run.given.has("n") else None
    shown = "" if servers is None else f"[{', '.join(servers)}]"
    run.out(f"update name server config success!{shown}\n{key} : {value}")


def update_kv_config(run: Run) -> None:
    run.admin.put_kv(run.given.text("s"), run.given.text("k"), run.given.text("v"))
    run.out("create or update kv config to namespace success.")


def delete_kv_config(run: Run) -> None:
    run.admin.delete_kv(run.given.text("s"), run.given.text("k"))
    run.out("delete kv config from namespace success.")


def wipe_write_perm(run: Run) -> None:
    name = run.given.text("b")
    for address, count in run.admin.wipe_write_permission(name).items():
        run.out(f"wipe write perm of broker[{name}] in name server[{address}] OK, {count}")


def add_write_perm(run: Run) -> None:
    name = run.given.text("b")
    for address, count in run.admin.add_write_permission(name).items():
        run.out(f"add write perm of broker[{name}] in name server[{address}] OK, {count}")


COMMANDS: Final = (
    Command("getNamesrvConfig", "Settings of name servers.", (), get_namesrv_config),
    Command(
        "updateNamesrvConfig",
        "Change a setting of name servers.",
        (KEY, VALUE),
        update_namesrv_config,
    ),
    Command(
        "updateKvConfig", "Set a key-value setting.", (NAMESPACE, KEY, VALUE), update_kv_config
    ),
    Command("deleteKvConfig", "Remove a key-value setting.", (NAMESPACE, KEY), delete_kv_config),
    Command("wipeWritePerm", "Have producers leave a broker.", (BROKER,), wipe_write_perm),
    Command("addWritePerm", "Have producers use a broker again.", (BROKER,), add_write_perm),
)
