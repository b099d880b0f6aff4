from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from firearrow.base.config import key_of
from firearrow.broker.config import BrokerConfig
from firearrow.broker.ignored_keys import IGNORED_KEYS

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "broker.md"


def test_guide_lists_exactly_the_settings_that_requests_can_change() -> None:
    _, _, rest = GUIDE.read_text("utf-8").partition("<!-- by request -->")
    listed = re.findall(r"`(\w+)`", rest.partition("<!-- end -->")[0])
    fields = dataclasses.fields(BrokerConfig)
    assert listed == sorted(key_of(field) for field in fields if field.metadata.get("remote"))


def test_setting_that_has_an_effect_is_not_among_those_that_have_none() -> None:
    assert IGNORED_KEYS & {key_of(field) for field in dataclasses.fields(BrokerConfig)} == set()
