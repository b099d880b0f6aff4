"""What the connector can fail at. Spark shows the text alone, so remedies are part of it."""

from __future__ import annotations

from firearrow.base.errors import ConfigError, FirearrowError


class OptionError(ConfigError):
    """An option of the data source is unknown, missing or mistyped; the text names it."""


class SchemaError(ConfigError):
    """The columns that were asked for, or given, are not those of the data source."""


class ConnectorError(FirearrowError):
    """The cluster did not do what a query needs."""


class DataLoss(ConnectorError):
    """Messages that a query still had to read are gone from their queue."""


class CorruptLog(ConnectorError):
    """A commit log has bytes that should be records and are not; the text names the place."""
