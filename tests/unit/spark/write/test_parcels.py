"""Record batches that are too large to be encoded at once: every row is in one piece."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_rocketmq.spark.write.parcels import _PIECE_BYTES, _PIECE_ROWS, pieces_of


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 150])
def test_a_batch_above_32_mib_is_cut_and_no_row_is_lost(rows: int) -> None:
    body = b"x" * (1 << 19)
    numbers = pa.array(range(rows), pa.int32())
    batch = pa.RecordBatch.from_pydict({"number": numbers, "body": pa.array([body] * rows)})
    pieces = list(pieces_of(batch))
    assert [number for piece in pieces for number in piece.column("number").to_pylist()] == list(range(rows))
    assert all(piece.nbytes <= _PIECE_BYTES for piece in pieces)
    assert len(pieces) <= batch.nbytes // _PIECE_BYTES + 1


@pytest.mark.parametrize("rows", [0, 1, _PIECE_ROWS, _PIECE_ROWS + 1, 2 * _PIECE_ROWS + 1])
def test_a_batch_of_many_small_rows_is_cut_by_their_number(rows: int) -> None:
    batch = pa.RecordBatch.from_pydict({"number": pa.array(range(rows), pa.int32())})
    pieces = list(pieces_of(batch))
    assert pa.Table.from_batches(pieces, batch.schema).column("number").to_pylist() == list(range(rows))
    assert all(0 < piece.num_rows <= _PIECE_ROWS for piece in pieces)


def test_a_row_above_32_mib_is_a_piece() -> None:
    large, small = b"x" * (_PIECE_BYTES + 1), b"y"
    batch = pa.RecordBatch.from_pydict({"body": pa.array([large, small, large])})
    assert [piece.num_rows for piece in pieces_of(batch)] == [1, 1, 1]
