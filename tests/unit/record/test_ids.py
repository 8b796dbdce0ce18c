from __future__ import annotations

from pyspark_rocketmq.record.ids import create_unique_id, encode_host, format_host, offset_message_id


def test_an_offset_message_id_is_host_port_and_commit_log_offset() -> None:
    assert offset_message_id(encode_host("127.0.0.1:10911"), 0x1234) == "7F00000100002A9F0000000000001234"
    assert len(offset_message_id(encode_host("[::1]:10911"), 0)) == 56


def test_a_unique_id_has_javas_layout() -> None:
    # 2024-02-01T00:00:01.500Z: 1,500 ms into the month.
    made = create_unique_id(bytes([10, 0, 0, 7]), 0x1ABCD, 0x11223344, 1_706_745_601_500, 0x10005)
    assert made == "0A000007ABCD11223344000005DC0005"
    assert len(create_unique_id(bytes(16), 1, 2, 0, 3)) == 56


def test_hosts() -> None:
    assert encode_host("1.2.3.4:80").hex() == "0102030400000050"
    assert format_host(bytes.fromhex("0102030400000050")) == "1.2.3.4:80"
    assert format_host(encode_host("[2001:db8::7]:9")) == "[2001:db8::7]:9"
    assert encode_host("::1:28911") == encode_host("[::1]:28911")  # as name servers write it
