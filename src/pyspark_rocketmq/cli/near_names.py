"""Which command a wrong name means: other tools' words for the same thing, then similar spellings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["near_commands"]

_MOST: Final = 2

_WORDS: Final = {
    "": {
        "topics": "list ls topicList",
        "groups": "list ls group consumer-groups",
        "lag": "consumerProgress progress behind",
        "topic create": "create new updateTopic",
        "topic alter": "alter update updateTopic",
        "topic show": "show describe topicRoute topicStatus",
        "topic delete": "delete rm remove deleteTopic",
        "offsets reset": "reset seek rewind resetOffsetByTime",
        "offsets show": "offset commit committed",
        "peek": "get cat browse search find queryMsgById queryMsgByKey",
        "consume": "read tail receive subscribe sub fetch",
        "produce": "send write publish pub put sendMessage",
        "export": "dump backup save download",
        "import": "load restore upload copy",
        "replay": "retry resend dlq redeliver",
        "bench": "perf benchmark measure",
        "dashboard": "ui web serve monitor",
        "doctor": "check diagnose ping",
        "cluster start": "start up broker namesrv mqbroker mqnamesrv",
        "cluster stop": "stop down shutdown",
        "cluster status": "status ps clusterList brokerStatus",
        "streams list": "jobs job",
        "streams run": "run submit",
        "tx list": "transactions transaction",
        "--version": "version",
        "--help": "help",
    },
    "topic": {
        "topics": "list ls",
        "topic show": "describe info get status stats route",
        "topic alter": "update change edit modify config set",
        "topic create": "new add make",
        "topic delete": "remove rm drop",
        "peek": "peek",
    },
    "topics": {
        "topics": "list ls",
        "topic show": "show describe",
        "topic create": "create add new",
        "topic alter": "alter update",
        "topic delete": "delete remove rm",
    },
    "groups": {
        "groups": "list ls",
        "lag": "show describe lag",
        "offsets reset": "reset",
    },
    "offsets": {
        "offsets show": "list ls get describe committed",
        "offsets reset": "set move commit rewind to",
        "offsets export": "save dump backup",
        "offsets import": "load restore",
        "offsets forget": "remove delete rm drop",
        "lag": "lag",
    },
    "cluster": {
        "cluster start": "up run launch create",
        "cluster stop": "down kill delete rm shutdown",
        "cluster status": "ps list ls show info",
        "cluster fetch": "download install pull",
    },
    "streams": {
        "streams list": "ls ps jobs status",
        "streams run": "start submit",
        "streams explain": "plan show describe",
        "streams stop": "kill cancel",
        "streams state": "tables query",
    },
    "tables": {"tables list": "ls", "tables describe": "show desc get schema"},
    "tx": {"tx list": "ls show status", "tx recover": "finish commit resolve rollback"},
}
"""Per group: the command, and the words of mqadmin, Kafka's tools and shells that mean it."""


def near_commands(group: Sequence[str], word: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the commands that a wrong word probably means, best first.

    Parameters
    ----------
    group : sequence of str
        The words before it; empty at the root.
    word : str
    names : iterable of str
        The names that exist in the group.
    """
    where = " ".join(group)
    meant = [command for command, words in _WORDS.get(where, {}).items() if word in words.split()]
    close = difflib.get_close_matches(word.lower(), list(names), n=_MOST)
    return tuple(dict.fromkeys([*meant, *(" ".join((*group, name)) for name in close)]))[:_MOST]
