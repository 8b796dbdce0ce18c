from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import zipfile

import pytest
from tests.support.cli import CommandLine, every_command

from pyspark_rocketmq import __version__
from pyspark_rocketmq.cli import main
from pyspark_rocketmq.devcluster import jars


@pytest.fixture
def cli(capsys, monkeypatch) -> CommandLine:
    return CommandLine(capsys, monkeypatch, None)


COMMANDS = every_command()


@pytest.mark.parametrize("path", [" ".join(path) for path in COMMANDS])
def test_every_help_has_an_example_that_begins_as_one_types_it(cli, path):
    done = cli(*path.split(), "--help")
    assert done.code == 0
    assert f"  pyspark-rocketmq {path}" in done.out


def test_several_name_servers_are_shown_with_the_quotes_that_a_shell_needs(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    paths = [
        path
        for path, command in COMMANDS.items()
        if any("--namesrv" in param.opts for param in command.params) and path != ("demo",)
    ]
    assert len(paths) > 10
    for path in paths:
        assert "'host:port;host:port'" in cli(*path, "--help").out


def test_a_switch_has_one_name():
    for path, command in COMMANDS.items():
        assert [param.name for param in command.params if param.secondary_opts] == [], path


def test_the_version_is_the_package_s(cli):
    assert cli("--version").out.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("topics", "NAMESRV_ADDR"),
        ("topics -n nonsense:port", "nameServer"),
        ("topics -n 127.0.0.1:1 -o tls", "name=value"),
        ("topics -n 127.0.0.1:1 -o tsl=true", "did you mean tls"),
        ("peek orders -n 127.0.0.1:1 --key a --id b", "give one of"),
        ("offsets export", "give a group or --checkpoint"),
        ("offsets import billing -n 127.0.0.1:1 --file /does/not/exist", "cannot be read"),
        ("offsets reset billing orders --to sometime -n 127.0.0.1:1", "--to takes earliest, latest"),
        ("offsets reset billing orders --to 5x -n 127.0.0.1:1", "a time ago (-2h)"),
        ('offsets reset billing orders --to {"orders":5x} -n 127.0.0.1:1', "JSON error at line 1"),
        ("consume orders --from 5x -n 127.0.0.1:1", "--from takes offset:100, earliest, latest"),
        ("replay billing --since 5x -n 127.0.0.1:1", "--since takes milliseconds"),
        ("tx list /does/not/exist", "no such folder"),
        ("sql /does/not/exist", "cannot be read"),
        (f"sql {sys.executable} --check", "not UTF-8"),
        ("tx recover /does/not/exist --yes -n 127.0.0.1:1", "no such folder"),
        (f"tx list {__file__}", "not a folder"),
        ("produce orders -n 127.0.0.1:1 --file /does/not/exist", "cannot be read"),
        ("consume orders -n 127.0.0.1:1 --commit", "--commit needs --group"),
        ("consume orders -n 127.0.0.1:1 --from group", "--from group needs --group"),
        ("topic create orders --queues 65537 -n 127.0.0.1:1", "65536"),
        ("topic create orders -n 127.0.0.1:1 --perm x", "rw, r or w"),
        ("doctor --topic orders", "NAMESRV_ADDR"),
        ("lag", "Missing argument"),
        ("nonsense", "No such command"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_with_exit_code_2(cli, arguments, message):
    done = cli(*arguments.split())
    assert done.code == 2, done
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_name_server_that_is_not_there_is_exit_code_1_and_named(cli):
    done = cli("topics", "-n", "127.0.0.1:1")
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert "127.0.0.1:1" in done.err


def test_options_are_listed_with_their_other_spellings(cli):
    rows = cli("options", "--json").json()
    by_name = {row["name"]: row for row in rows}
    assert "namesrvAddr" in by_name["nameServer"]["aliases"]
    assert by_name["failOnDataLoss"]["default"] == "true"
    assert "maxOffsetsPerTrigger" in cli("options").out


class Full(io.FileIO):
    """A file on a disk that is full."""

    def write(self, _: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("words", [["options"], ["options", "--json"], ["--version"]])
def test_a_disk_that_is_full_is_a_sentence(monkeypatch, capsys, tmp_path, words):
    output = io.TextIOWrapper(io.BufferedWriter(Full(tmp_path / "output", "w")), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", output)
    with pytest.raises(SystemExit) as end:
        main(words)
    with contextlib.suppress(OSError):
        output.close()
    assert end.value.code == 1
    assert "the output cannot be written: No space left on device" in capsys.readouterr().err


def test_a_terminal_shows_what_its_encoding_lacks(monkeypatch):
    shown = io.BytesIO()
    output = io.TextIOWrapper(shown, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    main(["options"])
    assert b"startingOffsets" in shown.getvalue()


def test_a_report_tells_versions_and_no_secret(cli, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "somebody")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "hush-hush")
    done = cli("report", "-n", "127.0.0.1:1")
    assert done.code == 0
    assert f"pyspark-rocketmq: {__version__}" in done.out
    assert "secretKey: (set)" in done.out
    assert "hush" not in done.out
    assert "somebody" not in done.out


def test_fetch_brings_the_proxy_if_asked(cli, tmp_path, monkeypatch):
    def ivy(coordinates, folder, *_):
        folder.mkdir(exist_ok=True)
        found = [folder / f"{coordinate.split(':')[1]}.jar" for coordinate in coordinates]
        for jar in found:
            with zipfile.ZipFile(jar, "w") as archive:
                archive.writestr("A.class", b"")
        return tuple(found)

    monkeypatch.setattr(jars, "_fetch", ivy)
    monkeypatch.setenv("PYSPARK_ROCKETMQ_CACHE", str(tmp_path))
    names = ["broker", "client", "namesrv", "tools"]
    for arguments, expected in ((), names), (("--proxy",), [*names, "proxy"]):
        (fetched,) = cli("cluster", "fetch", "--version", "5.4.0", "--json", *arguments).json()
        assert fetched["jars"] == len(expected)
        assert sorted(file.name for file in (tmp_path / "ivy").iterdir()) == sorted(
            f"rocketmq-{name}.jar" for name in expected
        )
    refused = cli("cluster", "fetch", "--version", "4.9.7", "--proxy")
    assert (refused.code, "has proxies since 5.0" in refused.err) == (2, True)
