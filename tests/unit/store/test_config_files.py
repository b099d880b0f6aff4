from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from firearrow.base.errors import ConfigError
from firearrow.store.config_files import ConfigFile

if TYPE_CHECKING:
    from pathlib import Path


def table(root: Path) -> ConfigFile[dict[str, int]]:
    return ConfigFile(
        root / "config" / "table.json",
        encode=lambda value: json.dumps(value).encode(),
        decode=json.loads,
    )


def test_a_table_comes_back_and_its_predecessor_is_the_backup(tmp_path: Path) -> None:
    assert table(tmp_path).load() is None
    table(tmp_path).save({"a": 1})
    table(tmp_path).save({"a": 2})
    assert table(tmp_path).load() == {"a": 2}
    assert json.loads((tmp_path / "config" / "table.json.bak").read_text()) == {"a": 1}


@pytest.mark.parametrize("damage", [b"", b"  \n", b"{", b'{"a": 2', None])
def test_a_main_file_that_is_missing_empty_or_broken_gives_way_to_its_backup(
    tmp_path: Path, damage: bytes | None
) -> None:
    table(tmp_path).save({"a": 1})
    table(tmp_path).save({"a": 2})
    main = tmp_path / "config" / "table.json"
    if damage is None:
        main.unlink()
    else:
        main.write_bytes(damage)
    assert table(tmp_path).load() == {"a": 1}
    table(tmp_path).save({"a": 3})
    assert table(tmp_path).load() == {"a": 3}


def test_two_empty_files_are_no_table_and_two_broken_ones_are_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    for name in ("table.json", "table.json.bak"):
        (folder / name).write_bytes(b"")
    assert table(tmp_path).load() is None
    for name in ("table.json", "table.json.bak"):
        (folder / name).write_bytes(b"{")
    with pytest.raises(ConfigError, match=r"table\.json cannot be read: .*Mend it, or remove it"):
        table(tmp_path).load()
