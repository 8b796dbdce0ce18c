"""The declared protocol against the classes of RocketMQ itself."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_rocketmq.devcluster.jars import resolve, rocketmq_coordinates
from pyspark_rocketmq.devcluster.java import find_java
from pyspark_rocketmq.remoting import header as headers
from pyspark_rocketmq.remoting.acl import Credentials, sign
from pyspark_rocketmq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from pyspark_rocketmq.remoting.command import FLAG_ONE_WAY, FLAG_RESPONSE, Command, Serializer
from pyspark_rocketmq.remoting.frame import decode_frame, encode_frame
from pyspark_rocketmq.remoting.header import (
    GetEarliestMsgStoretimeRequest,
    Header,
    OffsetResponse,
    RequestHeader,
    ResponseHeader,
)

Describe = Callable[..., list[list[str]]]

NAME_SERVER = {"GetRouteInfoRequestHeader", "DeleteTopicFromNamesrvRequestHeader"}
OFFSET_RESPONSES = [
    f"{name}ResponseHeader"
    for name in ("GetMaxOffset", "GetMinOffset", "SearchOffset", "QueryConsumerOffset")
]
WITHOUT_JAVA_CLASS = {
    "CheckClientConfigRequest",
    "GetAllTopicListFromNameserverRequest",
    "GetBrokerClusterInfoRequest",
    "GetBrokerConfigRequest",
    "GetBrokerRuntimeInfoRequest",
    "UpdateAndCreateSubscriptionGroupRequest",
    "UpdateBrokerConfigRequest",
}
# Asking without paging leaves these out, and the broker then answers with everything.
PAGING = {"topicSeq", "groupSeq"}
JAVA_TYPES = {
    str: {"String", "BoundaryType"},
    int: {"Integer", "int", "Long", "long"},
    bool: {"Boolean", "boolean"},
}


@pytest.fixture(scope="module")
def describe(tmp_path_factory: pytest.TempPathFactory) -> Describe:
    """Ask the Java program; an answer is a list of lines, split at tabs."""
    java = find_java()
    jars = resolve(rocketmq_coordinates())
    source = Path(__file__).parent / "java" / "DescribeRemoting.java"
    classes = java.compile([source], jars=jars, output=tmp_path_factory.mktemp("classes"))

    def ask(*args: str) -> list[list[str]]:
        printed = java.run("DescribeRemoting", *args, jars=[classes, *jars])
        return [line.split("\t")[1:] for line in printed.splitlines() if line.startswith("@")]

    return ask


def declared() -> Iterator[tuple[type[Header], str]]:
    """Every declared header with the Java classes that its docstring names."""
    for cls in vars(headers).values():
        if not isinstance(cls, type) or not issubclass(cls, Header):
            continue
        if cls in {Header, RequestHeader, ResponseHeader} or cls.__name__ in WITHOUT_JAVA_CLASS:
            continue
        if cls is OffsetResponse:
            yield from ((cls, name) for name in OFFSET_RESPONSES)
            continue
        named = re.match(r"``(\w+HeaderV?2?)``", cls.__doc__ or "")
        assert named, f"{cls.__name__} does not say which Java class it is"
        yield cls, f"{'namesrv.' if named[1] in NAME_SERVER else ''}{named[1]}"


def test_headers_have_javas_fields(describe: Describe) -> None:
    pairs = list(declared())
    java: dict[str, dict[str, tuple[str, bool]]] = defaultdict(dict)
    for name, field, kind, needed in describe("fields", *sorted({name for _, name in pairs})):
        java[name].setdefault(field, (kind, needed == "true"))
    wrong = []
    for cls, name in pairs:
        ours = {field.wire: field for field in cls.FIELDS}
        for wire, field in ours.items():
            if wire not in java[name]:
                wrong.append(f"{cls.__name__}: Java's {name} has no {wire}")
            elif java[name][wire][0] not in JAVA_TYPES[field.type]:
                wrong.append(f"{cls.__name__}.{wire} is {java[name][wire][0]} in Java")
        wrong += [
            f"{cls.__name__} lacks {wire}, which Java requires"
            for wire, (_, needed) in java[name].items()
            if needed and wire not in ours and wire not in PAGING
        ]
    assert not wrong, "\n".join(wrong)
    assert len(pairs) > 50
    assert "bname" in java[GetEarliestMsgStoretimeRequest.__name__ + "Header"]


def test_codes_are_javas(describe: Describe) -> None:
    java = {(kind, name): int(value) for kind, name, value in describe("codes")}
    ours = {
        (kind.__name__, member.name): int(member)
        for kind in (RequestCode, ResponseCode, LanguageCode)
        for member in kind
    }
    assert {key: java.get(key) for key in ours} == ours


COMMANDS = [
    Command(RequestCode.PULL_MESSAGE, 7, fields={"topic": "größe 😀", "queueId": "3"}),
    Command(ResponseCode.PULL_NOT_FOUND, -2, FLAG_RESPONSE, {"maxOffset": "9"}, 'said "no"\n\x01'),
    Command(RequestCode.UPDATE_CONSUMER_OFFSET, 2**31 - 1, FLAG_ONE_WAY, {"a\\": "\u2028\x7f"}, version=401),
]


@pytest.mark.parametrize("serializer", Serializer)
def test_java_reads_our_frames_and_we_read_javas(describe: Describe, serializer: Serializer) -> None:
    frames = [encode_frame(command, b"body", serializer=serializer) for command in COMMANDS]
    lines = describe("frames", *(frame.hex() for frame in frames))
    starts = [index for index, line in enumerate(lines) if line[0] == "code"] + [len(lines)]
    assert len(starts) == len(COMMANDS) + 1
    for command, start, end in zip(COMMANDS, starts, starts[1:], strict=False):
        facts = {line[0]: line[1] for line in lines[start:end] if line[0] != "field"}
        assert facts["type"] == serializer.name
        assert bytes.fromhex(facts["body"]) == b"body"
        read = Command(
            int(facts["code"]),
            int(facts["opaque"]),
            int(facts["flag"]),
            {text(line[1]): text(line[2]) for line in lines[start:end] if line[0] == "field"},
            text(facts["remark"]) or None,
            LanguageCode[facts["language"]],
            int(facts["version"]),
        )
        assert read == command
        answer = decode_frame(memoryview(bytes.fromhex(facts["frame"])))
        assert (answer.command, bytes(answer.body)) == (command, b"body")


def test_signature_is_javas(describe: Describe) -> None:
    signed = sign({"topic": "größe", "b": "2"}, b"\x00body", Credentials("me", "sécret", "token"))
    content = "metoken2größe".encode() + b"\x00body"
    assert describe("sign", content.hex(), "sécret") == [["signature", signed["Signature"]]]


def text(hexadecimal: str) -> str:
    return bytes.fromhex(hexadecimal).decode()
