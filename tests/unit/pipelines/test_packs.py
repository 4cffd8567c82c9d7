from hypothesis import given
from hypothesis import strategies as st

from pipelines import packs
from pipelines.packs import (
    OUTCOMES,
    Report,
    chunks,
    decode_report,
    decode_rows,
    encode_report,
    encode_rows,
)

REPORT = Report(
    shard=3,
    partition=1,
    offsets=[5, 7],
    outcomes=[1, 0],
    orders=[(7, 2, b"{}")],
    wake_at_ms=None,
    time_ms=1_800_000_000_000,
    policy_number=2,
    core_version=1,
    touched=["ab"],
)


def test_the_numbers_of_outcomes_never_change():
    names = "other stored held scheduled duplicate refused quarantined"
    assert " ".join(OUTCOMES) == names


def test_a_report_comes_back_as_it_was():
    assert decode_report(encode_report(REPORT)) == REPORT


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(), st.binary()
)


@given(st.lists(st.lists(values, max_size=5), max_size=5))
def test_rows_come_back_as_they_were(rows):
    assert decode_rows(encode_rows(rows)) == rows


def test_no_rows_make_no_chunk():
    assert list(chunks([])) == []


def test_a_chunk_is_closed_before_it_grows_too_large(monkeypatch):
    monkeypatch.setattr(packs, "PACK_BYTES", 10)
    rows = [[0, b"12345"], [1, "12345"], [2, b"1"], [3, b"x" * 50], [4, None]]
    packed = [decode_rows(chunk) for chunk in chunks(rows)]
    assert [[row[0] for row in chunk] for chunk in packed] == [[0, 1], [2], [3], [4]]


@given(st.lists(st.binary(max_size=400_000), max_size=12))
def test_chunks_hold_every_row_once_and_in_order(sizes):
    rows = [[n, value] for n, value in enumerate(sizes)]
    packed = list(chunks(iter(rows)))
    assert [row for chunk in packed for row in decode_rows(chunk)] == rows
    assert all(len(decode_rows(c)) == 1 or len(c) < packs.PACK_BYTES + 1_000 for c in packed)
