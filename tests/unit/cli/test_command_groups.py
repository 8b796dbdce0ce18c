"""Commands are imported when they run, and a wrong name is answered with the right one."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest
from tests.support.cli import CommandLine

from pyspark_rocketmq.cli import COMMANDS
from pyspark_rocketmq.cli.command_groups import load_command
from pyspark_rocketmq.cli.near_names import _WORDS, near_commands

PROGRAM = (
    "import json, sys\n"
    "from pyspark_rocketmq.cli import main\n"
    "try:\n"
    "    main(sys.argv[1:])\n"
    "finally:\n"
    "    print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
)
HEAVY = {"pyspark", "py4j", "pyarrow", "numpy", "pandas", "pydantic", "pyspark_rocketmq.client.client"}
MOST_CPU_S = 0.6
"""Four times what a quiet machine needs at most; with Spark and Arrow it was 1.3 s."""


@pytest.fixture
def cli(capsys, monkeypatch) -> CommandLine:
    return CommandLine(capsys, monkeypatch, None)


def run(*arguments: str, **env: str) -> tuple[str, set[str], float]:
    """Run the program in a new process. Return its output, the modules it imported, and its CPU seconds."""
    given = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"} | env
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], env=given, check=False, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1])), seconds


def test_the_version_needs_no_client():
    said, modules, seconds = run("--version")
    assert said.startswith("0.")
    assert not modules & HEAVY
    assert seconds < MOST_CPU_S


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("", "demo"),
        ("top", "topics"),
        ("offsets re", "reset"),
        ("peek orders --a", "--at"),
        ("replay billing --from d", "dlq"),
        ("options --of ", "read"),
        *((f"{name} --", "--help") for name in COMMANDS),
    ],
)
def test_completion_needs_no_client(words, completed):
    said, modules, seconds = run(
        _PYSPARK_ROCKETMQ_COMPLETE="complete_bash",
        COMP_WORDS=f"pyspark-rocketmq {words}",
        COMP_CWORD=str(len(words.split(" "))),
    )
    assert completed in said.split()
    assert not modules & HEAVY
    assert seconds < MOST_CPU_S


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_in_the_list_is_the_first_line_of_the_help(name):
    assert load_command(name, COMMANDS[name]).help.split("\n")[0] == COMMANDS[name].summary


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topic list", "`pyspark-rocketmq topics`"),
        ("topics list", "`pyspark-rocketmq topics`"),
        ("topic describe orders", "`pyspark-rocketmq topic show`"),
        ("topics create orders", "`pyspark-rocketmq topic create`"),
        ("groups describe billing", "`pyspark-rocketmq lag`"),
        ("topicList", "`pyspark-rocketmq topics`"),
        ("offset show billing", "`pyspark-rocketmq offsets show`"),
        ("peak orders", "`pyspark-rocketmq peek`"),
        ("send orders", "`pyspark-rocketmq produce`"),
        ("offsets rest billing", "`pyspark-rocketmq offsets reset`"),
        ("cluster up", "`pyspark-rocketmq cluster start`"),
        ("tx ls", "`pyspark-rocketmq tx list`"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(cli, typed, meant):
    done = cli(*typed.split())
    first, _, rest = done.err.partition("\n")
    assert done.code == 2
    assert first.startswith("error: No such command ")
    assert f"Did you mean {meant}" in first
    assert "--help" in rest


def test_a_name_like_no_other_lists_what_there_is(cli):
    assert "It has show, create" in cli("topic", "frobnicate").err


def test_every_answer_to_a_wrong_name_exists():
    for group, words in _WORDS.items():
        for command, wrong in words.items():
            name, *sub = command.split()
            if not name.startswith("--"):
                found = load_command(name, COMMANDS[name])
                assert all(each in found.commands for each in sub), command
            for word in wrong.split():
                assert command in near_commands(group.split(), word, ())[:2], (group, word)


def test_a_name_with_two_values_is_refused_without_them(cli):
    done = cli("topics", "-n", "127.0.0.1:1", "-o", "secretKey=hidden1", "-o", "secretKey=hidden2")
    assert done.code == 2
    assert "secretKey is given twice, with different values: give it once" in done.err
    assert "hidden" not in done.err
    done = cli("cluster", "start", "--config", "a=1", "--config", "a=2")
    assert "a is given twice" in done.err


def test_errors_are_json_where_the_output_is(cli):
    done = cli("offsets", "export", "--json")
    assert (done.code, done.out) == (2, "")
    told = json.loads(cli("topics", "-n", "127.0.0.1:1", "-o", "tls", "--json").err)
    assert told == {
        "error": "'tls' is not name=value",
        "type": "OptionError",
        "exitCode": 2,
        "facts": {},
    }
    told = json.loads(cli("lag", "--json").err)
    assert (told["type"], told["exitCode"]) == ("UsageError", 2)
