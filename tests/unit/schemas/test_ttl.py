from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import BadTtl
from schemas.limits import TIME_MS_MAX
from schemas.ttl import TtlHeader, TtlType
from tests.unit.schemas.golden import TIME_MS, cuts, flips, golden

headers = st.builds(
    TtlHeader,
    created_at_ms=st.integers(0, TIME_MS_MAX),
    ttl_seconds=st.integers(0, 2**32 - 1),
    ttl_type=st.integers(0, 1),
)


def test_the_bytes_are_frozen():
    header = TtlHeader(created_at_ms=TIME_MS, ttl_seconds=2_592_000, ttl_type=TtlType.ABSOLUTE)
    assert header.encode() == golden("ttl")
    assert TtlHeader.decode(golden("ttl")) == header


@given(headers)
def test_a_header_has_13_bytes_and_is_read_back(header):
    assert len(header.encode()) == 13
    assert TtlHeader.decode(header.encode()) == header


def test_no_byte_can_be_cut_off_or_added():
    for data in cuts(golden("ttl")):
        with pytest.raises(BadTtl, match="13 bytes"):
            TtlHeader.decode(data)


@given(st.binary(max_size=30))
def test_hostile_bytes_only_ever_raise_bad_ttl(data):
    with suppress(BadTtl):
        TtlHeader.decode(data)


def test_a_turned_bit_is_another_header_or_none():
    # The header is not signed by itself: it lies inside what the two devices seal.
    for flipped in flips(golden("ttl")):
        with suppress(BadTtl):
            assert TtlHeader.decode(flipped).encode() == flipped != golden("ttl")


@pytest.mark.parametrize("ttl_type", [2, 255])
def test_an_unknown_type_is_refused(ttl_type):
    with pytest.raises(BadTtl, match=f"TTL type {ttl_type} is unknown"):
        TtlHeader.decode(golden("ttl")[:12] + bytes([ttl_type]))


@pytest.mark.parametrize(
    ("created_at_ms", "ttl_seconds", "message"),
    [
        (-1, 0, "created_at"),
        (TIME_MS_MAX + 1, 0, "created_at"),
        (0, -1, "ttl_seconds"),
        (0, 2**32, "ttl_seconds"),
    ],
)
def test_numbers_out_of_range_are_never_encoded(created_at_ms, ttl_seconds, message):
    header = TtlHeader(created_at_ms=created_at_ms, ttl_seconds=ttl_seconds, ttl_type=0)
    with pytest.raises(BadTtl, match=message):
        header.encode()


def test_a_time_that_no_calendar_could_show_is_refused():
    with pytest.raises(BadTtl, match="created_at"):
        TtlHeader.decode(b"\xff" * 8 + golden("ttl")[8:])


def test_an_absolute_ttl_counts_from_the_creation():
    header = TtlHeader(created_at_ms=1_000, ttl_seconds=60, ttl_type=TtlType.ABSOLUTE)
    assert header.expires_at_ms(None) == header.expires_at_ms(50_000) == 61_000


def test_a_relative_ttl_counts_from_the_first_read():
    header = TtlHeader(created_at_ms=1_000, ttl_seconds=60, ttl_type=TtlType.RELATIVE)
    assert header.expires_at_ms(None) is None
    assert header.expires_at_ms(50_000) == 110_000
