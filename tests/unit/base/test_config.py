from __future__ import annotations

import dataclasses
import enum
import logging
from pathlib import Path

import pytest

from firearrow.base.config import (
    NotRemote,
    Source,
    environment_values,
    load,
    setting,
    to_properties,
    updated,
)
from firearrow.base.errors import ConfigError
from firearrow.metrics.settings import MetricsExporter
from firearrow.nameserver.config import IGNORED_KEYS, NameServerConfig
from firearrow.net.tls import TlsMode
from firearrow.wire.properties_text import format_properties, parse_properties


class Flush(enum.StrEnum):
    SYNC = "sync"
    ASYNC = "async"


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    listen_port: int = setting(9876, least=0, most=65535)
    queue_count: int = setting(4, remote=True, least=1)
    offset_shift: int = setting(0)
    auto_create: bool = setting(default=True, remote=True)
    store_path: Path = setting(Path("/store"))
    cert_path: Path | None = setting(None, key="tls.server.certPath")
    flush: Flush = setting(Flush.ASYNC, remote=True)
    cluster_name: str = setting("DefaultCluster")


def file(**values: str) -> Source:
    return Source("broker.properties", values, tolerant=True)


def flags(**values: str) -> Source:
    return Source("command line", values)


# Every setting unlike its default, so that a setting that gets lost is noticed.
CHANGED = NameServerConfig(
    listen_port=9877,
    bind_address="::1",
    kv_config_path=Path("/srv/a b/kv=config.json"),
    config_store_path=Path("/srv/名/namesrv.properties"),
    product_env_name="c:\\#e=f!",
    cluster_test=True,
    order_message_enable=True,
    return_order_topic_config_to_broker=False,
    support_acting_master=True,
    enable_topic_list=False,
    enable_all_topic_list=False,
    notify_min_broker_id_changed=True,
    delete_topic_with_broker_registration=True,
    need_wait_for_service=True,
    wait_seconds_for_service=7,
    enable_controller_in_namesrv=True,
    scan_not_active_broker_interval=5_000,
    server_channel_max_idle_time_seconds=60,
    broker_expired_millis=30_000,
    kv_print_interval_millis=1_000,
    connections_max=12,
    frame_bytes_max=4096,
    header_bytes_max=2048,
    write_stall_millis=500,
    metrics_exporter_type=MetricsExporter.PROM,
    metrics_prom_exporter_port=5560,
    metrics_prom_exporter_host="::1",
    tls_server_mode=TlsMode.ENFORCING,
    tls_server_cert_path=Path("/etc/cert.pem"),
    tls_server_key_path=Path("/etc/key.pem"),
    tls_server_trust_cert_path=Path("/etc/ca.pem"),
    tls_test_mode_enable=False,
)

# --- loading --------------------------------------------------------------------------------


def test_default_gives_way_to_file_file_to_environment_environment_to_flags() -> None:
    environ = {"FIREARROW_QUEUE_COUNT": "30", "FIREARROW_OFFSET_SHIFT": "30"}
    sources = [
        file(listenPort="20", queueCount="20", offsetShift="20"),
        Source("environment", environment_values(Settings, environ)),
        flags(offsetShift="40"),
    ]
    loaded = load(Settings, sources)
    assert (loaded.listen_port, loaded.queue_count, loaded.offset_shift) == (20, 30, 40)
    assert loaded.cluster_name == "DefaultCluster"


def test_settings_without_any_source_are_the_defaults() -> None:
    assert load(Settings, []) == Settings()


def test_unknown_key_on_the_command_line_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as refused:
        load(Settings, [flags(listenport="1")])
    assert str(refused.value) == (
        "command line: unknown setting 'listenport' (did you mean 'listenPort'?)"
    )


def test_unknown_key_that_resembles_nothing_gets_no_guess() -> None:
    with pytest.raises(ConfigError) as refused:
        load(Settings, [flags(zzz="1")])
    assert str(refused.value) == "command line: unknown setting 'zzz'"


def test_unknown_key_in_a_file_is_warned_about_and_the_rest_is_loaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loaded = load(Settings, [file(queueCounts="9", listenPort="1")])
    assert loaded == Settings(listen_port=1)
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert line.getMessage() == (
        "broker.properties: unknown setting 'queueCounts' (did you mean 'queueCount'?); "
        "it is ignored"
    )


@pytest.mark.parametrize("tolerant", [False, True])
def test_key_that_apache_has_and_we_do_not_need_is_mentioned_and_no_warning(
    tolerant: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    source = Source("broker.properties", {"serverWorkerThreads": "8"}, tolerant=tolerant)
    assert load(Settings, [source], ignored=IGNORED_KEYS) == Settings()
    (line,) = caplog.records
    assert line.levelno == logging.INFO
    assert line.getMessage() == "broker.properties: serverWorkerThreads has no effect here"


def test_no_key_is_both_a_setting_and_ignored() -> None:
    assert not IGNORED_KEYS & set(to_properties(NameServerConfig()))


def test_environment_names_settings_by_their_field_also_where_the_key_has_dots() -> None:
    environ = {
        "FIREARROW_LISTEN_PORT": "9999",
        "FIREARROW_TLS_SERVER_MODE": "enforcing",
        "FIREARROW_TLS_SERVER_CERT_PATH": "/etc/cert.pem",
        "FIREARROW_TLS_TEST_MODE_ENABLE": "false",
        "FIREARROW_HOT": "reference",  # read elsewhere
        "LISTEN_PORT": "1",
        "listenPort": "2",
    }
    values = environment_values(NameServerConfig, environ)
    assert values == {
        "listenPort": "9999",
        "tls.server.mode": "enforcing",
        "tls.server.certPath": "/etc/cert.pem",
        "tls.test.mode.enable": "false",
    }
    loaded = load(NameServerConfig, [Source("environment", values)])
    assert loaded.tls_server_mode is TlsMode.ENFORCING
    assert loaded.tls_server_cert_path == Path("/etc/cert.pem")
    assert loaded.tls_test_mode_enable is False


# --- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("autoCreate", "false", "auto_create", False),
        ("autoCreate", " TRUE ", "auto_create", True),
        ("listenPort", "0", "listen_port", 0),
        ("listenPort", "65535", "listen_port", 65535),
        ("listenPort", " 80 ", "listen_port", 80),
        ("queueCount", "1", "queue_count", 1),
        ("offsetShift", "-5", "offset_shift", -5),
        ("flush", "sync", "flush", Flush.SYNC),
        ("flush", "SYNC", "flush", Flush.SYNC),
        ("storePath", "/data/store", "store_path", Path("/data/store")),
        ("tls.server.certPath", "/c.pem", "cert_path", Path("/c.pem")),
        ("tls.server.certPath", "", "cert_path", None),
        ("tls.server.certPath", "  ", "cert_path", None),
        ("clusterName", "a b", "cluster_name", "a b"),
        ("clusterName", "", "cluster_name", ""),
    ],
)
def test_value_is_read_as_its_type_says(key: str, text: str, field: str, value: object) -> None:
    loaded = load(Settings, [flags(**{key: text})])
    assert getattr(loaded, field) == value
    assert type(getattr(loaded, field)) is type(value)


def test_path_below_home_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/rocket")
    assert load(Settings, [flags(storePath="~/store")]).store_path == Path("/home/rocket/store")


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("autoCreate", "yes", "true or false"),
        ("autoCreate", "", "true or false"),
        ("listenPort", "-1", "a number from 0 to 65535"),
        ("listenPort", "65536", "a number from 0 to 65535"),
        ("listenPort", "http", "a number from 0 to 65535"),
        ("listenPort", "1.5", "a number from 0 to 65535"),
        ("listenPort", "", "a number from 0 to 65535"),
        ("queueCount", "0", "a number of at least 1"),
        ("offsetShift", "x", "a number"),
        ("flush", "never", "sync or async"),
    ],
)
def test_wrong_value_is_refused_with_source_key_and_what_would_be_right(
    key: str, text: str, expected: str
) -> None:
    for source in (flags(**{key: text}), file(**{key: text})):
        with pytest.raises(ConfigError) as refused:
            load(Settings, [source])
        assert str(refused.value) == f"{source.name}: {key}={text!r}: {expected} expected"


# --- listing --------------------------------------------------------------------------------


def test_listing_shows_every_setting_as_a_properties_file_has_it() -> None:
    assert to_properties(Settings()) == {
        "listenPort": "9876",
        "queueCount": "4",
        "offsetShift": "0",
        "autoCreate": "true",
        "storePath": "/store",
        "tls.server.certPath": "",
        "flush": "async",
        "clusterName": "DefaultCluster",
    }


def test_changed_configuration_of_a_name_server_comes_back_from_its_file() -> None:
    default = NameServerConfig()
    for field in dataclasses.fields(NameServerConfig):
        assert getattr(CHANGED, field.name) != getattr(default, field.name), field.name
    written = format_properties(to_properties(CHANGED))
    assert load(NameServerConfig, [Source("file", parse_properties(written))]) == CHANGED


def test_default_configuration_of_a_name_server_comes_back_with_its_home_written_out() -> None:
    default = NameServerConfig()
    written = format_properties(to_properties(default))
    assert load(NameServerConfig, [Source("file", parse_properties(written))]) == (
        dataclasses.replace(
            default,
            kv_config_path=default.kv_config_path.expanduser(),
            config_store_path=default.config_store_path.expanduser(),
        )
    )


# --- changing by request --------------------------------------------------------------------


def test_request_changes_remote_settings_and_leaves_the_old_configuration_alone() -> None:
    before = Settings()
    after = updated(before, {"autoCreate": "false", "flush": "sync"}, who="admin")
    assert after == Settings(auto_create=False, flush=Flush.SYNC)
    assert before == Settings()


@pytest.mark.parametrize("key", ["listenPort", "storePath", "tls.server.certPath", "clusterName"])
def test_request_for_any_other_setting_is_refused_with_those_that_can_be_changed(key: str) -> None:
    with pytest.raises(NotRemote) as refused:
        updated(Settings(), {"autoCreate": "false", key: "1"}, who="admin")
    assert str(refused.value) == (
        f"{key} can only be changed in the configuration file, with a restart; "
        "by request: autoCreate, flush, queueCount"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"autoCreate": "false", "autoCreates": "true"}, "did you mean 'autoCreate'"),
        ({"autoCreate": "false", "queueCount": "0"}, "admin: queueCount='0': a number of at least"),
    ],
)
def test_request_with_one_mistake_is_refused_as_a_whole(
    changes: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        updated(Settings(), changes, who="admin")
    assert not isinstance(refused.value, NotRemote)


def test_addresses_and_files_of_a_name_server_cannot_be_changed_by_request() -> None:
    remote = [field for field in dataclasses.fields(NameServerConfig) if field.metadata["remote"]]
    assert remote
    for field in remote:
        words = {"path", "port", "address", "tls"} & set(field.name.split("_"))
        assert not words, field.name
