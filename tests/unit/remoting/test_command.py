"""Headers in both serializations, byte for byte."""

from __future__ import annotations

import json
import struct

import pytest

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.remoting.codes import LanguageCode, RequestCode
from pyspark_rocketmq.remoting.command import (
    FLAG_ONE_WAY,
    FLAG_RESPONSE,
    Command,
    Serializer,
    decode_header,
    encode_header,
)

# As a 5.4.0 broker sent it in answer to GET_MAX_OFFSET.
ANSWER = (
    b'{"code":0,"extFields":{"offset":"0"},"flag":1,"language":"JAVA","opaque":3,'
    b'"serializeTypeCurrentRPC":"JSON","version":493}'
)


def from_json(**members: object) -> Command:
    document: dict[str, object] = {"code": 0, "opaque": 1, **members}
    return decode_header(json.dumps(document).encode(), Serializer.JSON)


def binary(*, code: int = 0, language: int = 0, remark: bytes = b"", ext: bytes = b"") -> bytes:
    fixed = struct.pack(">hbhii", code, language, 493, 3, 1)
    return fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(ext)) + ext


class TestJson:
    def test_answer_of_a_broker_reads(self) -> None:
        command = decode_header(ANSWER, Serializer.JSON)
        assert command == Command(
            0, 3, FLAG_RESPONSE, {"offset": "0"}, None, language=LanguageCode.JAVA, version=493
        )
        assert command.is_response
        assert not command.is_one_way

    def test_answer_of_a_broker_writes(self) -> None:
        command = Command(0, 3, FLAG_RESPONSE, {"offset": "0"}, language=LanguageCode.JAVA)
        assert encode_header(command, Serializer.JSON) == ANSWER

    def test_several_fields_and_another_version(self) -> None:
        command = Command(11, 7, fields={"a": "1", "b": "2", "c": ""}, version=401)
        assert decode_header(encode_header(command, Serializer.JSON), Serializer.JSON) == command

    def test_request_is_an_object_of_the_known_keys(self) -> None:
        command = Command(RequestCode.PULL_MESSAGE, -1, FLAG_ONE_WAY, {"topic": 'größe "x"\n'}, remark="why")
        assert json.loads(encode_header(command, Serializer.JSON)) == {
            "code": 11,
            "extFields": {"topic": 'größe "x"\n'},
            "flag": 2,
            "language": "PYTHON",
            "opaque": -1,
            "remark": "why",
            "serializeTypeCurrentRPC": "JSON",
            "version": 493,
        }
        assert command.is_one_way

    @pytest.mark.parametrize(
        ("members", "field", "expected"),
        [
            pytest.param({"code": "17"}, "code", 17, id="code as a string"),
            pytest.param({"opaque": "-5"}, "opaque", -5, id="opaque as a string"),
            pytest.param({"flag": "3"}, "flag", 3, id="flag as a string"),
            pytest.param({"opaque": 2**31 - 1}, "opaque", 2**31 - 1, id="the largest opaque"),
            pytest.param({"opaque": -(2**31)}, "opaque", -(2**31), id="the smallest opaque"),
            pytest.param({}, "flag", 0, id="no flag"),
            pytest.param({}, "version", 0, id="no version"),
            pytest.param({}, "fields", {}, id="no extFields"),
            pytest.param({"extFields": None}, "fields", {}, id="extFields null"),
            pytest.param(
                {"extFields": {"z": "z", "a": 1, "b": 2.5, "c": True, "d": None, "e": "x", "f": False}},
                "fields",
                {"z": "z", "a": "1", "b": "2.5", "c": "true", "e": "x", "f": "false"},
                id="values that are no strings",
            ),
            pytest.param({"remark": None}, "remark", None, id="remark null"),
            pytest.param({"remark": ""}, "remark", None, id="remark empty"),
            pytest.param({"remark": "FOUND"}, "remark", "FOUND", id="remark"),
            pytest.param({"language": "KLINGON"}, "language", LanguageCode.OTHER, id="unknown language"),
            pytest.param({"language": ["x"]}, "language", LanguageCode.OTHER, id="language of another type"),
            pytest.param({"more": {"x": []}}, "code", 0, id="unknown key"),
        ],
    )
    def test_tolerates_what_servers_tolerate(
        self, members: dict[str, object], field: str, expected: object
    ) -> None:
        assert getattr(from_json(**members), field) == expected

    @pytest.mark.parametrize(
        "header",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b"3",
            b"\xff{}",
            b'{"opaque":1}',
            b'{"code":0}',
            b'{"code":null,"opaque":1}',
            b'{"code":true,"opaque":1}',
            b'{"code":1.5,"opaque":1}',
            b'{"code":"x","opaque":1}',
            b'{"code":0,"opaque":2147483648}',
            b'{"code":0,"opaque":-2147483649}',
            b'{"code":0,"opaque":1,"extFields":[1]}',
            b'{"code":0,"opaque":1,"extFields":{"a":{}}}',
            b'{"code":0,"opaque":1,"remark":7}',
            b'{"code":0,"opaque":1}{}',
            b'{"code":' + b"9" * 5000 + b',"opaque":1}',
            pytest.param(b'{"a":' * 100_000, id="deep"),
        ],
    )
    def test_refuses_garbage(self, header: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            decode_header(header, Serializer.JSON)

    def test_text_without_utf8_form_is_our_error_and_stays_out_of_it(self) -> None:
        command = Command(11, 1, fields={"SecurityToken": "hush\ud800"})
        with pytest.raises(LocalProtocolError) as caught:
            encode_header(command, Serializer.JSON)
        assert "hush" not in f"{caught.value!r}{caught.value}"
        assert caught.value.__cause__ is None


class TestBinary:
    def test_bytes_of_a_request(self) -> None:
        command = Command(11, 77, FLAG_ONE_WAY, {"topic": "ö"}, "no")
        assert encode_header(command, Serializer.ROCKETMQ) == (
            b"\x00\x0b"  # code
            b"\x03"  # PYTHON
            b"\x01\xed"  # version 493
            b"\x00\x00\x00\x4d"  # opaque
            b"\x00\x00\x00\x02"  # flag
            b"\x00\x00\x00\x02no"  # remark
            b"\x00\x00\x00\x0d"  # 13 bytes of ext fields
            b"\x00\x05topic"
            b"\x00\x00\x00\x02\xc3\xb6"
        )

    def test_reads_what_java_writes(self) -> None:
        header = binary(code=19, remark=b"FOUND", ext=b"\x00\x06offset\x00\x00\x00\x0212")
        assert decode_header(header, Serializer.ROCKETMQ) == Command(
            19, 3, 1, {"offset": "12"}, "FOUND", language=LanguageCode.JAVA, version=493
        )

    def test_several_fields_and_another_version(self) -> None:
        command = Command(11, 7, fields={"a": "1", "bb": "22"}, version=401)
        assert decode_header(encode_header(command, Serializer.ROCKETMQ), Serializer.ROCKETMQ) == command

    def test_no_remark_no_fields(self) -> None:
        command = decode_header(binary(), Serializer.ROCKETMQ)
        assert command.remark is None
        assert command.fields == {}

    def test_empty_value_is_not_sent_because_java_would_read_null(self) -> None:
        header = encode_header(Command(11, 77, fields={"a": "", "b": "x"}), Serializer.ROCKETMQ)
        assert decode_header(header, Serializer.ROCKETMQ).fields == {"b": "x"}
        assert b"a" not in header

    def test_empty_value_reads_as_sent(self) -> None:
        command = decode_header(binary(ext=b"\x00\x01a\x00\x00\x00\x00"), Serializer.ROCKETMQ)
        assert command.fields == {"a": ""}

    def test_unknown_language_is_other(self) -> None:
        assert decode_header(binary(language=99), Serializer.ROCKETMQ).language is LanguageCode.OTHER

    @pytest.mark.parametrize("code", [32_768, 200_050, -32_769])
    def test_code_beyond_16_bits_is_our_error(self, code: int) -> None:
        with pytest.raises(LocalProtocolError, match="JSON"):
            encode_header(Command(code, 1), Serializer.ROCKETMQ)
        assert decode_header(encode_header(Command(code, 1), Serializer.JSON), Serializer.JSON).code == code

    def test_code_of_16_bits_fits(self) -> None:
        header = encode_header(Command(32_767, 1), Serializer.ROCKETMQ)
        assert decode_header(header, Serializer.ROCKETMQ).code == 32_767

    def test_field_name_beyond_java_short_is_our_error(self) -> None:
        with pytest.raises(LocalProtocolError):
            encode_header(Command(1, 1, fields={"n" * 32_768: "x"}), Serializer.ROCKETMQ)

    def test_the_longest_field_name_that_java_reads(self) -> None:
        fields = {"n" * 32_767: "x"}
        header = encode_header(Command(1, 1, fields=fields), Serializer.ROCKETMQ)
        assert decode_header(header, Serializer.ROCKETMQ).fields == fields

    @pytest.mark.parametrize(
        "header",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(binary()[:-1], id="cut in the ext length"),
            pytest.param(binary()[:16], id="cut in the remark length"),
            pytest.param(binary() + b"\x00", id="one byte too many"),
            pytest.param(binary()[:13] + b"\x7f\xff\xff\xff", id="remark of 2 GiB"),
            pytest.param(binary()[:13] + b"\xff\xff\xff\xff" + bytes(8), id="remark of negative length"),
            pytest.param(binary()[:17] + b"\x7f\xff\xff\xff", id="ext fields of 2 GiB"),
            pytest.param(binary()[:17] + b"\xff\xff\xff\xff", id="ext fields of negative length"),
            pytest.param(binary(ext=b"\x00\x09a\x00\x00\x00\x00"), id="name beyond the end"),
            pytest.param(binary(ext=b"\x00\x01a\x00\x00\x00\x01"), id="value beyond the end"),
            pytest.param(binary(ext=b"\x00\x01a\xff\xff\xff\xffxx"), id="value of negative length"),
            pytest.param(binary(ext=b"\x00\x01a\x00"), id="cut in a value's length"),
            pytest.param(binary(remark=b"\xff"), id="remark that is no UTF-8"),
        ],
    )
    def test_refuses_bad_lengths(self, header: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            decode_header(header, Serializer.ROCKETMQ)
