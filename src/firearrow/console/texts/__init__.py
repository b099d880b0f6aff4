"""What the console says, in every language it speaks."""

from __future__ import annotations

from typing import Final

from firearrow.console.texts.en import TEXTS as ENGLISH
from firearrow.console.texts.zh import TEXTS as CHINESE

LANGUAGES: Final = {"en": "English", "zh": "中文"}
_TABLES: Final = {"en": ENGLISH, "zh": CHINESE}


class Texts:
    """Texts of one language, by key; values fill the places in braces."""

    def __init__(self, language: str) -> None:
        self.language = language if language in _TABLES else "en"
        self._table = _TABLES[self.language]

    def __call__(self, key: str, **values: object) -> str:
        text = self._table[key]
        return text.format(**values) if values else text


def language_of(cookie: str | None, accepted: str | None) -> str:
    """The language that somebody chose, or that the browser asks for."""
    if cookie in _TABLES:
        return cookie
    for part in (accepted or "").split(","):
        language = part.partition(";")[0].strip().lower()[:2]
        if language in _TABLES:
            return language
    return "en"
