"""The console in a real browser, over a live cluster with real traffic.

With FIREARROW_SCREENSHOTS=1 the pictures of the guide are taken anew.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect, sync_playwright

from firearrow import MessageQueue

from .cache import cache_root
from .console_site import CHROMIUM_FLAGS, PASSWORDS, SPARK_S, Site, require_chromium
from .processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
PATIENCE_MS: Final = 30_000
SIZE: Final = {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("console")) as site:
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = require_chromium(cache_root())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page of somebody who is logged in."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.failures: list[str] = []
        page.on("pageerror", lambda error: self.failures.append(str(error)))

    def one(self, marker: str) -> Locator:
        return self.page.locator(f"[data-test='{marker}']")

    def menu(self, key: str) -> None:
        """Click through the menu, as a user does."""
        self.one(f"menu-{key}").click()
        self.page.wait_for_url(self.url + ("/" if key == "overview" else f"/{key}"))
        self.page.wait_for_load_state("networkidle")

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)
        self.page.wait_for_load_state("networkidle")

    def sees(self, marker: str, text: str | re.Pattern[str]) -> None:
        expect(self.one(marker).first).to_contain_text(text)

    def confirm(self) -> None:
        self.one("confirm").click()

    def is_told(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.locator(".q-notification").filter(has_text=text).first).to_be_visible()

    def picture(self, name: str) -> None:
        """For the guide, if somebody wants new pictures."""
        if os.environ.get("FIREARROW_SCREENSHOTS"):
            from PIL import Image  # noqa: PLC0415 - only for pictures

            IMAGES.mkdir(exist_ok=True)
            self.page.wait_for_timeout(600)  # let ripples and shades end
            raw = self.page.screenshot()
            path = IMAGES / f"console-{name}.png"
            with Image.open(io.BytesIO(raw)) as image:
                image.convert("RGB").quantize(96).save(path, optimize=True)


@contextmanager
def logged_in(
    browser: Browser, site: Site, name: str = "otto", language: str = "en-US"
) -> Iterator[Tab]:
    context = browser.new_context(
        locale=language, viewport={"width": SIZE["width"], "height": SIZE["height"]}
    )
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    try:
        tab = Tab(context.new_page(), site.url)
        tab.open("/")
        tab.page.fill("#name", name)
        tab.page.fill("#password", PASSWORDS[name][1])
        tab.page.click("button")
        expect(tab.one("who")).to_contain_text(name)
        yield tab
        assert tab.failures == []
    finally:
        context.close()


def test_nobody_gets_in_with_a_wrong_password(site: Site, browser: Browser) -> None:
    page = browser.new_context(locale="en-US").new_page()
    page.goto(site.url + "/topics")
    assert "/login?next=" in page.url
    page.fill("#name", "otto")
    page.fill("#password", "wrong")
    page.click("button")
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    assert page.url.endswith("/login")


def test_the_overview_shows_live_figures_and_what_is_wrong(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        tab.sees("score", re.compile(r"^\d+$"))
        tab.sees("reasons", "shipping")  # whose members disagree
        tab.sees("reasons", "firearrow group show shipping")
        tab.sees("brokers", "broker-a:0")
        rate = tab.page.locator(".fa-tile").filter(has_text="per second").first
        expect(rate).to_contain_text(re.compile(r"[1-9][\d,]*\.\d"))  # messages do come in
        assert tab.page.locator("canvas").count() == 3
        tab.picture("overview")


def test_topics_are_found_looked_at_created_changed_and_deleted(
    site: Site, browser: Browser
) -> None:
    with logged_in(browser, site, "anna") as tab:
        tab.menu("topics")
        tab.sees("topics", "orders")
        expect(tab.one("topics")).not_to_contain_text("TBW102")
        tab.picture("topics")
        tab.one("filter").fill("refu")
        expect(tab.one("topics")).not_to_contain_text("orders")
        tab.one("filter").fill("")
        tab.one("topic-create").click()
        tab.one("topic-name").fill("made-here")
        tab.one("save").click()
        tab.is_told("Done")
        tab.sees("topics", "made-here")
        assert site.admin.topic_stats("made-here").messages == 0
        tab.page.get_by_role("link", name="made-here").click()
        tab.one("topic-update").click()
        tab.one("write-queues").fill("3")
        tab.one("save").click()
        wait_until(
            lambda: site.admin.topic_config("made-here")["broker-a"].write_queue_nums == 3,
            timeout_s=30,
            what="three queues to write to",
        )
        expect(tab.one("route").locator("tbody td").nth(2)).to_have_text("3")  # it came anew
        tab.one("topic-delete").click()
        tab.confirm()
        tab.page.wait_for_url("**/topics")
        expect(tab.one("topics")).to_contain_text("orders")
        expect(tab.one("topics")).not_to_contain_text("made-here")


def test_a_message_sent_from_a_topic_page_arrives(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        tab.open("/topic?name=reports")
        tab.sees("route", "broker-a")
        tab.one("topic-send").click()
        tab.one("send-keys").fill("by-hand")
        tab.one("send-body").fill('{"sent": "by hand"}')
        tab.one("save").click()
        tab.is_told("Sent")
        found = site.admin.messages_by_key("reports", "by-hand")
        assert [message.body for message in found] == [b'{"sent": "by hand"}']
        tab.open("/topic?name=orders")
        tab.sees("topic-groups", "billing")
        tab.picture("topic")


def test_a_group_shows_members_lag_and_who_has_which_queue(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        tab.menu("groups")
        tab.sees("groups", "billing")
        tab.sees("groups", "subscriptions differ")
        tab.picture("groups")
        tab.page.get_by_role("link", name="billing").click()
        expect(tab.one("members").locator("tbody tr")).to_have_count(2)
        matrix = tab.one("matrix").filter(has_text="●").first
        expect(matrix.get_by_text("●")).to_have_count(4)  # each queue of orders has one owner
        tab.picture("group")
        tab.open("/group?name=shipping")
        tab.sees("divergent", "parcels")
        tab.sees("divergent", "large")
        tab.sees("divergent", "small")
        tab.picture("divergent")


def test_a_reset_is_looked_at_before_it_is_made(site: Site, browser: Browser) -> None:
    queues = [MessageQueue(topic="refunds", broker_name="broker-a", queue_id=n) for n in (0, 1)]
    with logged_in(browser, site) as tab:
        tab.open("/group?name=refunding")
        tab.one("group-reset").click()
        dialog = tab.page.get_by_role("dialog")
        dialog.locator(".q-select").click()
        tab.page.get_by_role("option", name="refunds", exact=True).click()
        expect(tab.one("reset-do")).to_be_disabled()
        tab.one("reset-preview").click()
        tab.sees("preview", "5 messages come again, 0 are skipped")
        before = site.admin.committed_offsets("refunding", "refunds")
        assert sum(before[queue] or 0 for queue in queues) == 5  # nothing has moved yet
        tab.picture("reset")
        tab.one("reset-do").click()
        # Its consumer fails on all of them again.
        wait_until(
            lambda: sum(1 for _ in site.admin.dlq_messages("refunding")) == 10,
            timeout_s=60,
            what="five more dead letters",
        )


def test_messages_are_found_by_key_time_tag_and_id(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        tab.menu("messages")
        tab.one("search-topic").fill("orders")
        tab.one("search-tag").fill("open")
        tab.one("search-time").click()
        tab.sees("found-note", "Messages: 30")
        tab.picture("messages")
        tab.one("tab-key").click()
        tab.one("search-key").fill("o-7")
        tab.one("search-by-key").click()
        tab.sees("found", '"order": 7')
        msg_id = tab.one("found").locator("a").first.inner_text()
        tab.one("tab-id").click()
        tab.one("search-id").fill(msg_id)
        tab.one("search-by-id").click()
        expect(tab.one("found").locator("a").filter(has_text=msg_id).first).to_be_visible()


def test_the_live_tail_shows_messages_as_they_come(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        tab.open("/messages?topic=orders")
        tab.one("tab-tail").click()
        tab.one("tail-switch").click()
        tab.sees("tail", "live ")
        first = tab.one("tail").locator("tbody tr").first.inner_text()
        expect(tab.one("tail").locator("tbody tr").first).not_to_have_text(first)
        tab.picture("tail")
        tab.one("tail-switch").click()


def test_one_message_shows_its_body_and_its_life(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        wait_until(lambda: _is_traced(site), timeout_s=60, what="the trace of a consumed message")
        tab.open(f"/message?id={site.life_id}")
        tab.sees("body-text-json", '"order": 7')
        tab.one("body-hex").click()
        tab.sees("body-text-hex", "00000000  7b 22 6f 72")
        tab.one("body-text").click()
        tab.sees("body-text-text", '{"order": 7')
        for word in ("born", "stored", "sent", "delivered", "consumed"):
            tab.sees("life", word)
        tab.one("body-json").click()
        tab.picture("message")
        tab.one("life").scroll_into_view_if_needed()
        tab.picture("life")
        before = site.admin.topic_stats("orders").messages
        tab.one("resend").click()
        tab.confirm()
        tab.page.wait_for_url(lambda url: site.life_id not in url)
        tab.sees("body-text-json", '"order": 7')
        assert site.admin.topic_stats("orders").messages > before


def _is_traced(site: Site) -> bool:
    message = site.admin.message_by_id(site.life_id)
    trace = site.admin.message_trace(message.msg_id)
    return any(one.success for one in trace.deliveries)


def test_dead_letters_are_resent_and_exported(site: Site, browser: Browser) -> None:
    count = sum(1 for _ in site.admin.dlq_messages("refunding"))
    with logged_in(browser, site) as tab:
        tab.menu("dlq")
        tab.open("/dlq?group=refunding")
        tab.sees("dead", "refund 0")
        tab.picture("dlq")
        with tab.page.expect_download() as waiting:
            tab.one("dlq-csv").click()
        text = waiting.value.path().read_text("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {row["body"] for row in rows} == {f"refund {number}" for number in range(5)}
        with tab.page.expect_download() as waiting:
            tab.one("dlq-json").click()
        told = json.loads(waiting.value.path().read_text("utf-8"))
        assert len(told) == len(rows) == count
        tab.one("dead").locator("tbody .q-checkbox").first.click()
        tab.one("dlq-resend").click()
        tab.confirm()
        tab.is_told("Done")
        wait_until(  # it fails once more
            lambda: sum(1 for _ in site.admin.dlq_messages("refunding")) == count + 1,
            timeout_s=60,
            what="the dead letter to come back",
        )


def test_a_scheduled_message_is_taken_back(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        tab.menu("scheduled")
        tab.sees("scheduled-topics", "reports")
        tab.page.get_by_role("link", name="reports").click()
        rows = tab.one("scheduled").locator("tbody tr")
        expect(rows).to_have_count(5)
        tab.picture("scheduled")
        rows.first.locator(".q-checkbox").click()
        tab.one("recall").click()
        tab.confirm()
        expect(rows).to_have_count(4)


def test_an_open_transaction_is_shown(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        tab.menu("transactions")
        tab.sees("open", "1")
        tab.sees("transactions", "payers")
        tab.picture("transactions")


def test_a_broker_shows_and_changes_its_settings(site: Site, browser: Browser) -> None:
    with logged_in(browser, site, "anna") as tab:
        tab.menu("brokers")
        tab.sees("brokers", "Master")
        tab.page.get_by_role("link", name="broker-a").click()
        tab.sees("replication", "Replicas: 0")
        tab.sees("config", "autoCreateTopicEnable")
        tab.picture("broker")
        tab.one("broker-config").click()
        tab.one("config-key").fill("listenPort")
        tab.one("config-value").fill("1")
        tab.one("save").click()
        tab.is_told("listenPort can only be changed in the configuration file")
        tab.one("config-key").fill("maxMessageSize")
        tab.one("config-value").fill("1000000")
        tab.one("save").click()
        wait_until(
            lambda: site.admin.broker_config("broker-a")["maxMessageSize"] == "1000000",
            timeout_s=30,
            what="the new setting",
        )


def test_spark_pipelines_are_shown(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        wait_until(lambda: site.archived() >= 60, timeout_s=SPARK_S, what="sixty orders archived")
        tab.menu("pipelines")
        tab.sees("pipelines", "archive-orders")
        tab.sees("pipelines", "running")
        cells = tab.one("streams").locator("tbody td").all_inner_texts()
        assert int(cells[2].replace(",", "")) >= 60, cells
        tab.sees("spark-groups", "archive-pipeline")
        tab.picture("pipelines")


def test_an_administrator_keeps_users_and_all_is_written_down(site: Site, browser: Browser) -> None:
    with logged_in(browser, site, "anna") as tab:
        tab.menu("users")
        tab.sees("users", "otto")
        tab.sees("acl", "whoever reaches the broker may use it")
        tab.one("user-add").click()
        tab.one("user-name").fill("newcomer")
        tab.one("user-secret").fill("too short")
        tab.one("save").click()
        tab.is_told("at least 10 characters")
        tab.one("user-secret").fill("long enough now")
        tab.one("save").click()
        tab.sees("users", "newcomer")
        tab.picture("users")
        tab.menu("audit")
        tab.sees("audit", "user.add")
        tab.sees("audit", "newcomer")
        expect(tab.one("audit")).not_to_contain_text("long enough now")
        tab.picture("audit")


def test_a_viewer_looks_and_does_nothing(site: Site, browser: Browser) -> None:
    with logged_in(browser, site, "vera") as tab:
        for key in ("users", "audit"):
            expect(tab.one(f"menu-{key}")).to_have_count(0)
        tab.open("/users")
        expect(tab.page.get_by_text("this needs the role admin")).to_be_visible()
        tab.open(f"/message?id={site.life_id}")
        expect(tab.one("masked")).to_be_visible()
        expect(tab.page.locator("body")).not_to_contain_text('"amount"')
        expect(tab.one("resend")).to_have_count(0)
        tab.open("/messages?topic=orders")
        tab.one("tab-key").click()
        tab.one("search-key").fill("o-7")
        tab.one("search-by-key").click()
        tab.sees("found", "••••••")
        tab.open("/topic?name=orders")
        for marker in ("topic-send", "topic-update", "topic-delete"):
            expect(tab.one(marker)).to_have_count(0)


def test_an_operator_does_not_delete(site: Site, browser: Browser) -> None:
    with logged_in(browser, site, "otto") as tab:
        tab.open("/topic?name=orders")
        expect(tab.one("topic-send")).to_have_count(1)
        expect(tab.one("topic-delete")).to_have_count(0)
        expect(tab.one("menu-users")).to_have_count(0)


def test_the_console_speaks_chinese_and_english(site: Site, browser: Browser) -> None:
    with logged_in(browser, site, "otto", "zh-CN") as tab:
        expect(tab.page.get_by_role("heading", name="概览")).to_be_visible()
        tab.picture("overview-zh")
        for key, word in (
            ("topics", "新建主题"),
            ("groups", "订阅不一致"),
            ("messages", "实时跟踪"),
        ):
            tab.menu(key)
            expect(tab.page.get_by_text(word).first).to_be_visible()
        tab.one("language").click()
        expect(tab.page.get_by_role("heading", name="Messages")).to_be_visible()


def test_after_the_log_out_the_door_is_closed(site: Site, browser: Browser) -> None:
    with logged_in(browser, site) as tab:
        tab.one("logout").click()
        tab.page.wait_for_url("**/login")
        tab.picture("login")
        tab.open("/topics")
        assert "/login" in tab.page.url
