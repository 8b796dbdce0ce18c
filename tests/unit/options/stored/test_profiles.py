"""Profiles: what a name stands for, what overrides it, and that no text shows a secret."""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import (
    ClientOptions,
    ReceiverOptions,
    SinkOptions,
    SourceOptions,
    parse_direct_options,
    parse_options,
)
from pyspark_rocketmq.options.stored import profiles
from pyspark_rocketmq.options.stored.profiles import config_file, profile_names

SECRET = "planted-Secret-4711"

FILE = """
[profiles.production]
nameServer = "ns-1:9876;ns-2:9876"
requestTimeoutMs = 20_000
tls = true
tlsServerName = "brokers.example.com"
accessKey = { env = "PRODUCTION_USER" }
secretKey = { file = "SECRET_FILE" }

[profiles.staging]
NAMESRVADDR = "staging:9876"
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Write the file, and return an environment that names it."""
    (tmp_path / "secret").write_text(f"{SECRET}\n")

    def write(text: str) -> dict[str, str]:
        path = tmp_path / "config.toml"
        path.write_text(text.replace("SECRET_FILE", str(tmp_path / "secret")))
        return {"ROCKETMQ_CONFIG_FILE": str(path), "PRODUCTION_USER": "reader"}

    return write


def client(environ: dict[str, str], **given: object) -> ClientOptions:
    return parse_options(ClientOptions, given, environ=environ)


def everything_of(error: BaseException) -> str:
    """Return all that a log, a debugger or a pickle shows of an error and its causes."""
    parts = ["".join(traceback.format_exception(error)), pickle.dumps(error).decode("latin-1")]
    chain: BaseException | None = error
    while chain is not None:
        parts += [str(chain), repr(vars(chain)), repr(chain.args)]
        chain = chain.__cause__ or chain.__context__
    return "\n".join(parts)


# --- what a name stands for -----------------------------------------------------------------


def test_a_profile_sets_the_options_of_the_connection(write) -> None:
    found = client(write(FILE), profile="production")
    assert found.name_servers == ("ns-1:9876", "ns-2:9876")
    assert (found.request_timeout_ms, found.tls) == (20_000, True)
    assert found.tls_server_name == "brokers.example.com"
    assert (found.access_key, found.secret_key) == ("reader", SECRET)
    assert SECRET not in repr(found)


def test_names_are_not_case_sensitive_and_may_be_aliases(write) -> None:
    assert client(write(FILE), profile="staging").name_servers == ("staging:9876",)


def test_every_api_takes_a_profile(write, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = write(FILE)
    given = {"profile": "production", "topic": "orders"}
    parsed = [
        parse_options(SourceOptions, given, environ=environ),
        parse_options(SinkOptions, given, environ=environ),
        parse_options(ReceiverOptions, {**given, "consumerGroup": "g"}, environ=environ),
    ]
    assert {options.client.secret_key for options in parsed} == {SECRET}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    direct = parse_direct_options({"profile": "production"})
    assert (direct.client.secret_key, direct.client.request_timeout_ms) == (SECRET, 20_000)
    assert parse_direct_options({"profile": "staging"}).client.request_timeout_ms == 3_000


def test_executors_get_what_the_driver_has_read(write) -> None:
    environ = write(FILE)
    parsed = parse_options(SourceOptions, {"profile": "production", "topic": "orders"}, environ=environ)
    sent = pickle.dumps(parsed)
    Path(environ["ROCKETMQ_CONFIG_FILE"]).unlink()
    assert pickle.loads(sent) == parsed
    assert pickle.loads(sent).client.secret_key == SECRET


def test_a_command_gives_a_secret(write) -> None:
    words = [sys.executable, "-c", f"print({SECRET!r})"]
    reference = "{ command = [" + ", ".join(f"'''{word}'''" for word in words) + "] }"
    environ = write(
        f"[profiles.a]\nnameServer='h:1'\naccessKey={{env='PRODUCTION_USER'}}\nsecretKey={reference}"
    )
    assert client(environ, profile="a").secret_key == SECRET


def test_any_option_may_be_a_reference(write) -> None:
    environ = write("[profiles.a]\nnameServer = { env = 'SERVERS' }\n")
    assert client(environ | {"SERVERS": "h:1;h:2"}, profile="a").name_servers == ("h:1", "h:2")


def test_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config_file({}) == tmp_path / ".config" / "pyspark-rocketmq" / "config.toml"
    assert config_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/pyspark-rocketmq/config.toml")
    assert config_file({"XDG_CONFIG_HOME": "/x", "ROCKETMQ_CONFIG_FILE": "~/mine"}) == tmp_path / "mine"


def test_the_names_for_completion(write) -> None:
    assert profile_names(write(FILE)) == ("production", "staging")


# --- precedence -----------------------------------------------------------------------------


def test_options_override_the_profile_and_it_overrides_the_environment(write) -> None:
    environ = write(FILE) | {"NAMESRV_ADDR": "environment:1", "ROCKETMQ_ACCESS_KEY": "e"}
    assert client(environ, profile="production").name_servers == ("ns-1:9876", "ns-2:9876")
    assert client(environ, profile="production", nameServer="h:1").name_servers == ("h:1",)
    assert client(environ, profile="production", **{"pull.timeout.ms": 7}).request_timeout_ms == 7


def test_the_environment_may_name_the_profile(write) -> None:
    environ = write(FILE) | {"ROCKETMQ_PROFILE": "staging", "NAMESRV_ADDR": "environment:1"}
    assert client(environ).name_servers == ("staging:9876",)
    assert client(environ, profile="production").name_servers == ("ns-1:9876", "ns-2:9876")


def test_the_environment_sets_what_the_profile_does_not(write) -> None:
    environ = write(FILE) | {"ROCKETMQ_ACCESS_KEY": "e", "ROCKETMQ_SECRET_KEY": "s"}
    assert client(environ, profile="staging").access_key == "e"


def test_credentials_come_from_one_place(write, tmp_path: Path) -> None:
    environ = write(FILE) | {"ROCKETMQ_SECURITY_TOKEN": "t", "ROCKETMQ_CREDENTIALS_FILE": "/nowhere"}
    found = client(environ, profile="production")
    assert (found.access_key, found.security_token) == ("reader", None)
    found = client(write(FILE), profile="production", accessKey="me", secretKey="mine")
    assert (found.access_key, found.secret_key) == ("me", "mine")
    with pytest.raises(OptionError, match="secretKey is missing"):
        client(write(FILE), profile="production", accessKey="me")
    (tmp_path / "credentials").write_text("accessKey=file\nsecretKey=f")
    found = client(write(FILE), profile="production", credentialsFile=str(tmp_path / "credentials"))
    assert (found.access_key, found.secret_key) == ("file", "f")


def test_the_credentials_of_a_profile_may_be_a_file_with_lines(write, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("accessKey=file\nsecretKey=f")
    environ = write(f"[profiles.a]\nnameServer='h:1'\ncredentialsFile='{tmp_path / 'credentials'}'")
    assert client(environ, profile="a").secret_key == "f"


def test_without_tls_the_credentials_still_come_from_one_place(write) -> None:
    with pytest.raises(OptionError, match="secretKey is missing"):
        client(write(FILE), profile="production", accessKey="me", tls=False)


def test_without_tls_the_profile_s_details_of_it_are_not_used(write) -> None:
    found = client(write(FILE), profile="production", tls=False)
    assert (found.tls, found.tls_server_name) == (False, None)


def test_without_a_profile_the_file_is_not_read() -> None:
    assert client({"ROCKETMQ_CONFIG_FILE": "/nowhere"}, nameServer="h:1").profile is None


# --- what is wrong with a file --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE, r"unknown profile prodution: did you mean production\? The profiles are: production, staging"),
        ("", "unknown profile prodution: the file has no profiles"),
        ("[profile.prodution]", "unknown table profile: the file has tables"),
        ("profiles = 3", "a profile is a table"),
        ("[profiles]\nprodution = 3", "a profile is a table"),
        ("[profiles.prodution", r"the file with profiles is not TOML: Expected .*path=/.*config\.toml"),
        (
            "[profiles.prodution]\nsecretKey='x'",
            r"secretKey of profile prodution is written into the file: give .*path=/.*config\.toml",
        ),
        ("[profiles.prodution]\nsecretKey={command=['sh', 1]}", r"is no reference: .*path=/.*config\.toml"),
        (
            "[profiles.prodution]\nnameServers='h:1'",
            "unknown option nameServers of profile prodution: did you",
        ),
        ("[profiles.prodution]\ntopic='a'", "unknown option topic of profile prodution: "),
        ("[profiles.prodution]\nprofile='a'", "unknown option profile of profile prodution: "),
        ("[profiles.prodution]\nnameServer='h:1'\nnamesrvAddr='h:1'", "nameServer is set twice"),
        ("[profiles.prodution]\nnameServer=''", "nameServer of profile prodution is empty"),
        ("[profiles.prodution]\nnameServer=['h:1']", "nameServer of profile prodution must be a text"),
        (
            "[profiles.prodution]\nnameServer='h:1'\ntls='yes'",
            r"option tls \(from profile prodution\) is malformed",
        ),
        ("[profiles.prodution]\nsecretKey={environment='A'}", "is no reference: expected"),
        ("[profiles.prodution]\nsecretKey={fiel='A'}", "is no reference: did you mean file"),
        ("[profiles.prodution]\nsecretKey={env='A', file='B'}", "is no reference: expected"),
        ("[profiles.prodution]\nsecretKey={command='pass'}", "is no reference: expected"),
        ("[profiles.prodution]\nsecretKey={command=[]}", "is no reference: expected"),
        ("[profiles.prodution]\nsecretKey={env='ABSENT'}", "environment variable ABSENT, which is not set"),
        (
            "[profiles.prodution]\nsecretKey={file='/nowhere'}",
            r"cannot be read: No such file .*path=/nowhere",
        ),
        ("[profiles.prodution]\nsecretKey={command=['/nowhere']}", "cannot be started: No such file"),
    ],
)
def test_a_wrong_file_says_what_and_where(write, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        client(write(text), profile="prodution", nameServer=None)


def test_a_file_that_does_not_exist() -> None:
    said = (
        r"^the file with profiles \(set ROCKETMQ_CONFIG_FILE for another path\) cannot be read: No such file "
    )
    with pytest.raises(OptionError, match=rf"{said}.*path=/nowhere"):
        client({"ROCKETMQ_CONFIG_FILE": "/nowhere"}, profile="a")


OF_A = "secretKey of profile a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(f"secretKey='{SECRET}'", f"^{OF_A} is written into the file", id="literal"),
        pytest.param(f"secretKey='{SECRET}'\nthis is not TOML", "is not TOML: ", id="not TOML"),
        pytest.param(
            "secretKey={file='SECRET_FILE.latin'}",
            rf"^the file of {OF_A} is not UTF-8 .*path=/.*secret\.latin\b",
            id="not UTF-8",
        ),
        pytest.param("secretKey={file='SECRET_FILE.lines'}", f"^{OF_A} has several lines", id="lines"),
        pytest.param(
            f"secretKey={{command=['sh', '-c', 'echo {SECRET}; exit 3']}}",
            rf"^the command of {OF_A} ended with code 3; run it to see why .*program=sh\b",
            id="exit code",
        ),
        pytest.param(
            f"secretKey={{command=['sh', '-c', 'echo {SECRET}; sleep 60']}}",
            rf"^the command of {OF_A} did not end within 1 s .*program=sh\b",
            id="time-out",
        ),
        pytest.param(
            "secretKey={command=['cat', 'SECRET_FILE.latin']}",
            rf"^the output of the command of {OF_A} is not UTF-8 .*program=cat\b",
            id="output not UTF-8",
        ),
    ],
)
def test_no_error_shows_a_secret(
    write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(profiles, "_COMMAND_TIMEOUT_S", 1)
    (tmp_path / "secret.latin").write_bytes(f"{SECRET}\xe9".encode("latin-1"))
    (tmp_path / "secret.lines").write_text(f"user\n{SECRET}\n")
    with pytest.raises(OptionError, match=said) as caught:
        client(write(f"[profiles.a]\n{text}"), profile="a", nameServer="h:1")
    assert SECRET not in everything_of(caught.value)


def test_a_replacement_character_is_one_like_any_other(write, tmp_path: Path) -> None:
    (tmp_path / "space").write_text("a\ufffdb", encoding="utf-8")
    environ = write(
        f"[profiles.a]\nnameServer='h:1'\ntlsServerName={{file='{tmp_path / 'space'}'}}\ntls=true"
    )
    assert client(environ, profile="a").tls_server_name == "a\ufffdb"


def test_a_command_reads_nothing_and_shows_nothing(write, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for the terminal, or write to it what may be secret."""
    given = []

    def run(words: list[str], **settings: object) -> subprocess.CompletedProcess[bytes]:
        given.append((words, settings["stdin"], settings["stderr"]))
        return subprocess.CompletedProcess(words, 0, b"h:1\n")

    monkeypatch.setattr(profiles.subprocess, "run", run)
    environ = write("[profiles.a]\nnameServer={command=['pass', 'show']}")
    assert client(environ, profile="a").name_servers == ("h:1",)
    assert given == [(["pass", "show"], subprocess.DEVNULL, subprocess.DEVNULL)]


def test_a_credentials_file_that_is_not_text_is_told_without_it(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_bytes(f"accessKey=a\nsecretKey={SECRET}\xe9".encode("latin-1"))
    with pytest.raises(OptionError, match="it is not UTF-8") as caught:
        client({}, nameServer="h:1", credentialsFile=str(path))
    assert SECRET not in everything_of(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_file(write: Callable[[str], dict[str, str]]) -> None:
    assert client(write("\ufeff" + FILE), profile="staging").name_servers == ("staging:9876",)


@pytest.mark.parametrize("reference", ['{ file = "a\\u0000b" }', '{ command = ["a\\u0000b"] }'])
def test_a_reference_that_no_system_can_follow(
    write: Callable[[str], dict[str, str]], reference: str
) -> None:
    environ = write(f'[profiles.a]\nnameServer = "h:1"\nsecretKey = {reference}\n')
    with pytest.raises(OptionError, match=r"secretKey of profile a cannot be .*: embedded null byte"):
        client(environ, profile="a")


@pytest.mark.parametrize("option", ["nameServer", "namespace", "credentialsFile", "tlsCaFile"])
def test_no_value_has_a_nul(option: str) -> None:
    given = {"nameServer": "h:1"} | {option: "a\0b:1"}
    with pytest.raises(OptionError, match=option):
        client({}, **given)
