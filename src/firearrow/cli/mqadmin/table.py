"""Every name of mqadmin 5.3: what does it here, or why nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from firearrow.cli.mqadmin import (
    brokers,
    controllers,
    exports,
    groups,
    messages,
    nameservers,
    offsets,
    topics,
)

if TYPE_CHECKING:
    from firearrow.cli.mqadmin.run import Command

COMMANDS: Final[dict[str, Command]] = {
    command.name: command
    for family in (topics, groups, offsets, messages, brokers, controllers, nameservers, exports)
    for command in family.COMMANDS
}

_ROCKSDB: Final = "FireArrow keeps its settings and queues in RocketMQ's files, not in RocksDB"
_COLD: Final = "FireArrow reads cold data in threads of its own, so it limits no group's cold reads"
_STATIC: Final = "static topics are not built: a queue belongs to the broker that has it"
_CONTAINER: Final = (
    "there are no broker containers: start another process, firearrow broker -c FILE"
)
_AUTH: Final = "users and access rules are not built: bind to loopback, or put a network in front"
_REPLICA: Final = "a replica learns from its master how far it is; nobody else may tell it"

NOT_APPLICABLE: Final[dict[str, str]] = {
    "updateStaticTopic": _STATIC,
    "remappingStaticTopic": _STATIC,
    "addBroker": _CONTAINER,
    "removeBroker": _CONTAINER,
    "getColdDataFlowCtrInfo": _COLD,
    "updateColdDataFlowCtrGroupConfig": _COLD,
    "removeColdDataFlowCtrGroupConfig": _COLD,
    "setCommitLogReadAheadMode": "the system's own read-ahead is used, and follows the load",
    "dumpCompactionLog": "compacted topics are not built",
    "rocksDBConfigToJson": _ROCKSDB,
    "exportMetadataInRocksDB": _ROCKSDB,
    "checkRocksdbCqWriteProgress": _ROCKSDB,
    "exportPopRecord": "POP is not built: consumers pull",
    "resetMasterFlushOffset": _REPLICA,
    **dict.fromkeys(
        (
            *("createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser"),
            *("createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl", "copyAcl"),
        ),
        _AUTH,
    ),
}
