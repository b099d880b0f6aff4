from __future__ import annotations

import re
from pathlib import Path

from firearrow.console.data.catalog import TOPIC_KINDS
from firearrow.console.data.health import Severity
from firearrow.console.page_table import PAGES
from firearrow.console.texts import LANGUAGES, Texts, language_of
from firearrow.console.texts.en import TEXTS as ENGLISH
from firearrow.console.texts.zh import TEXTS as CHINESE
from firearrow.console.users import Role
from firearrow.model.group import ConsumeType, MessageModel

SOURCES = sorted((Path(__file__).parents[3] / "src" / "firearrow" / "console").rglob("*.py"))


def test_every_language_has_the_same_texts() -> None:
    assert ENGLISH.keys() == CHINESE.keys()
    assert all(ENGLISH.values())
    assert all(CHINESE.values())


def test_every_language_fills_the_same_places() -> None:
    def places(table: dict[str, str]) -> dict[str, list[str]]:
        return {key: sorted(re.findall(r"\{(\w+)\}", text)) for key, text in table.items()}

    assert places(ENGLISH) == places(CHINESE)


def test_every_text_that_a_page_wants_exists_and_none_is_left_over() -> None:
    code = "\n".join(path.read_text("utf-8") for path in SOURCES if path.parent.name != "texts")
    wanted = set(re.findall(r"""\bt\(\s*["']([a-z0-9_.]+)["']""", code))
    wanted |= set(re.findall(r"\"((?:health|life|dlq|outcome)\.[a-z_]+)\"", code)) & set(ENGLISH)
    made = {f"page.{page.key}" for page in PAGES}
    made |= {f"kind.{kind}" for kind in TOPIC_KINDS} | {f"role.{role.word}" for role in Role}
    made |= {f"severity.{severity.word}" for severity in Severity}
    made |= {f"outcome.{word}" for word in ("done", "refused", "failed")}
    made |= {f"search.{way}" for way in ("time", "key", "id", "tail")}
    made |= {f"reset.{way}" for way in ("earliest", "latest", "time")}
    made |= {f"body.{form}" for form in ("json", "text", "hex")}
    made |= {f"mode.{one.value.lower()}" for one in (*MessageModel, *ConsumeType)}
    made |= {"lane.broker", "lane.producer", "dlq.csv", "dlq.json"}
    made |= {f"users.{edit}" for edit in ("role", "password", "remove")}
    health = set(re.findall(r"\"(health\.[a-z_]+)\"", code))
    assert wanted | made | health == set(ENGLISH)


def test_a_language_is_chosen_or_asked_for_by_the_browser() -> None:
    assert language_of("zh", "en") == "zh"
    assert language_of(None, "zh-CN,zh;q=0.9,en;q=0.8") == "zh"
    assert language_of("xx", "fr, de") == "en"
    assert language_of(None, None) == "en"
    assert Texts("zh")("done") == "完成"
    assert Texts("xx").language == "en"
    assert set(LANGUAGES) == {"en", "zh"}
