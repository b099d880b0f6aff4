"""Settings of a role from its file and from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.base.config import Source
from firearrow.base.errors import ConfigError, PeerProtocolError
from firearrow.wire.properties_text import parse_properties

if TYPE_CHECKING:
    from pathlib import Path


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


def flag_values(options: list[str] | None, **named: str | int | Path | None) -> dict[str, str]:
    """Settings from ``-o key=value`` and from flags of their own, which win."""
    values: dict[str, str] = {}
    for option in options or []:
        key, equals, value = option.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"-o {option!r}: key=value expected, as -o listenPort=9877")
        values[key.strip()] = value
    values.update({key: str(value) for key, value in named.items() if value is not None})
    return values
