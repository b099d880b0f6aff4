"""Steps of the click pipeline in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def known(clicks: DataFrame) -> DataFrame:
    """Clicks of people; robots and broken messages are left out."""
    return clicks.where("user IS NOT NULL AND NOT startswith(user, 'bot-')")
