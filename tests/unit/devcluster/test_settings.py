from __future__ import annotations

from pathlib import Path

from pyspark_rocketmq.devcluster.settings import (
    broker_properties,
    jvm_arguments,
    name_server_properties,
    properties_text,
    without_own_certificate,
)


def _broker(**changes: object) -> dict[str, str]:
    arguments: dict[str, object] = {
        "cluster": "c",
        "broker_name": "broker-a",
        "broker_id": 0,
        "port": 20_000,
        "name_server": "127.0.0.1:19000;127.0.0.1:19001",
        "home": Path("/w/broker-a"),
        "overrides": {},
        **changes,
    }
    return broker_properties(**arguments)  # type: ignore[arg-type]


def test_a_master_and_a_slave_differ_in_id_and_role() -> None:
    assert (_broker()["brokerId"], _broker()["brokerRole"]) == ("0", "ASYNC_MASTER")
    slave = _broker(broker_id=1)
    assert (slave["brokerId"], slave["brokerRole"]) == ("1", "SLAVE")


def test_everything_of_a_broker_stays_in_its_home_and_on_loopback() -> None:
    properties = _broker()
    assert {properties[key] for key in ("bindAddress", "brokerIP1", "brokerIP2")} == {"127.0.0.1"}
    assert properties["storePathRootDir"] == "/w/broker-a/store"
    assert properties["storePathCommitLog"].startswith("/w/broker-a/store/")


def test_the_replication_port_is_within_the_reserved_block() -> None:
    assert _broker()["haListenPort"] == "20001"


def test_users_settings_win() -> None:
    properties = _broker(overrides={"mappedFileSizeCommitLog": "1073741824", "brokerRole": "SYNC_MASTER"})
    assert properties["mappedFileSizeCommitLog"] == "1073741824"
    assert properties["brokerRole"] == "SYNC_MASTER"
    assert name_server_properties(1, {"listenPort": "2"})["listenPort"] == "2"


def test_a_properties_file_reads_back_as_java_reads_it() -> None:
    text = properties_text({"path": "C:\\x", "user": '{"a":"b=c"}', "pad": " x", "two": "a\nb"})
    assert text == 'path=C:\\\\x\nuser={"a":"b=c"}\npad=\\ x\ntwo=a\\nb\n'
    assert properties_text({"path": "/gr\u00fcn/\u6570\u636e/\U0001f680"}) == (
        "path=/gr\\u00fcn/\\u6570\\u636e/\\ud83d\\ude80\n"
    )


def test_jvm_arguments_end_with_the_callers() -> None:
    arguments = jvm_arguments(Path("/w/b"), "1g", ["-Dtls.server.mode=enforcing"])
    assert arguments[0] == "-Xmx1g"
    assert "-Duser.home=/w/b" in arguments
    assert arguments[-1] == "-Dtls.server.mode=enforcing"


def test_tls_is_off_unless_arguments_set_it_up() -> None:
    assert without_own_certificate(["-Xss1m"]) == ("-Dtls.server.mode=disabled", "-Xss1m")
    assert without_own_certificate(["-Dtls.test.mode.enable=false"]) == ("-Dtls.test.mode.enable=false",)
