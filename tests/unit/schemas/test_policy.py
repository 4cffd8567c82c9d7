from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import BadSettings
from schemas.limits import RANGES
from schemas.policy import Policy

FIELDS = Policy.__struct_fields__
policies = st.builds(
    Policy, **{name: st.integers(*RANGES[f"policy.{name}"]) for name in Policy.__struct_fields__}
)


def test_defaults_are_those_of_profile_chat():
    assert Policy().to_json() == (
        b'{"expiry_ahead_max_s":7776000,"expiry_cap_s":2592000,"expiry_remaining_min_s":3600,'
        b'"expiry_tolerance_s":300,"gap_max":1000,"gap_timeout_ms":300000,"held_max":1000,'
        b'"never_lane_idle_s":86400,"recent_ids_max":4096,"retransmit_span":10,'
        b'"skipped_ranges_max":1000}'
    )


def test_every_field_has_a_range_and_every_range_a_field():
    assert {f"policy.{name}" for name in FIELDS} == {k for k in RANGES if k.startswith("policy.")}


@given(policies)
def test_what_is_written_is_read(policy):
    assert Policy.from_json(policy.to_json()) == policy


def test_a_missing_field_has_its_default():
    assert Policy.from_json(b'{"gap_max":5}') == Policy(gap_max=5)
    assert Policy.from_json(b"{}") == Policy()


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_out_of_range_is_refused_with_key_value_and_range(name):
    least, most = RANGES[f"policy.{name}"]
    for value in (least - 1, most + 1):
        expected = f"policy.{name} = {value}: must be a whole number from {least} to {most}"
        with pytest.raises(BadSettings, match=expected):
            Policy(**{name: value})
        with pytest.raises(BadSettings, match=expected):
            Policy.from_json(msgspec.json.encode({name: value}))


@pytest.mark.parametrize("value", [b'"5"', b"5.5", b"true", b"null", b"[]", b"1e3"])
def test_a_value_that_is_no_whole_number_is_refused(value):
    with pytest.raises(BadSettings, match=r"policy\.gap_max = .*: must be a whole number"):
        Policy.from_json(b'{"gap_max":' + value + b"}")


def test_an_unknown_field_is_refused():
    with pytest.raises(BadSettings, match=r"policy\.gap_maximum: there is no such setting"):
        Policy.from_json(b'{"gap_maximum":5}')


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"\xff":1}', b"[" * 10_000, b"{} {}"])
def test_what_is_not_json_is_refused(data):
    with pytest.raises(BadSettings, match="must be JSON"):
        Policy.from_json(data)


@pytest.mark.parametrize("data", [b"[]", b"1", b'"x"', b"null"])
def test_json_that_is_no_object_is_refused(data):
    with pytest.raises(BadSettings, match="must be a JSON object"):
        Policy.from_json(data)


def test_too_much_json_is_refused_before_it_is_parsed():
    with pytest.raises(BadSettings, match="at most 16384 bytes, this one 16385"):
        Policy.from_json(b"[" * 16_385)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_hostile_bytes_only_ever_raise_bad_settings(data):
    with suppress(BadSettings):
        Policy.from_json(data)
