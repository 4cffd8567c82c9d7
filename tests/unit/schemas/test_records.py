from contextlib import suppress
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import BadRecord
from schemas.limits import TIME_MS_MAX
from schemas.records import (
    INTERNAL_KINDS,
    VALUE_MAX,
    Kind,
    Record,
    decode_policy,
    decode_record,
    decode_snapshot,
    decode_tick,
    encode_policy,
    encode_record,
    encode_snapshot,
    encode_tick,
    mailbox_of,
    partition_of,
    route,
    shard_of,
)
from schemas.signals import SignalKind
from tests.factories import ack, ack_batch, address, device, envelope, lane_signal, signal
from tests.unit.schemas.golden import B, golden

kinds = st.sampled_from(list(Kind)).map(int)
RECIPIENT = address(device(2))
FROM_DEVICES = [
    (Kind.ENVELOPE, envelope()),
    (Kind.ACK, ack(envelope())),
    (Kind.ACK_BATCH, ack_batch([envelope(n=1), envelope(n=2)])),
    (Kind.SIGNAL, signal(envelope(), kind=SignalKind.NAK, arg=5)),
    (Kind.SIGNAL, signal(envelope(), kind=SignalKind.TAKEN)),
    (Kind.SIGNAL, signal(envelope(), kind=SignalKind.CANCEL)),
    (Kind.SIGNAL, lane_signal(kind=SignalKind.VOID)),
    (Kind.SIGNAL, lane_signal(kind=SignalKind.ELSEWHERE)),
]


def test_the_bytes_of_records_are_frozen():
    assert route(Kind.ACK, golden("ack"), 64, 2) == (0, golden("record-ack"))
    assert encode_record(Kind.TICK, 5, encode_tick(1_800_000_300_000)) == golden("record-tick")
    assert encode_record(Kind.SNAPSHOT, 5, encode_snapshot(3)) == golden("record-snapshot")
    policy = encode_policy(1, 1, b'{"gap_max":500}')
    assert encode_record(Kind.POLICY, 5, policy) == golden("record-policy")


def test_old_records_are_still_read():
    assert decode_record(golden("record-ack")) == Record(kind=2, shard=42, body=golden("ack"))
    assert decode_tick(decode_record(golden("record-tick")).body) == 1_800_000_300_000
    assert decode_snapshot(decode_record(golden("record-snapshot")).body) == 3
    policy = decode_record(golden("record-policy")).body
    assert decode_policy(policy) == (1, 1, b'{"gap_max":500}')


def test_kinds_are_frozen():
    assert {kind.name: kind.value for kind in Kind} == {
        "ENVELOPE": 1,
        "ACK": 2,
        "ACK_BATCH": 3,
        "SIGNAL": 4,
        "S2_ACK": 5,
        "STATEMENT": 6,
        "ATTEMPT_RESULT": 7,
        "PRESENCE": 8,
        "STORAGE_PROOF": 9,
        "TICK": 16,
        "SNAPSHOT": 17,
        "POLICY": 18,
        "REDRIVE": 19,
    }
    assert {kind.value for kind in INTERNAL_KINDS} == {7, 8, 16, 17, 18, 19}


@given(kinds, st.integers(0, 65_535), st.binary(max_size=300))
def test_what_is_encoded_is_decoded(kind, shard, body):
    value = encode_record(kind, shard, body)
    assert value[:3] == bytes([kind]) + shard.to_bytes(2)
    assert decode_record(value) == Record(kind=kind, shard=shard, body=body)
    assert decode_record(bytearray(value)) == Record(kind=kind, shard=shard, body=body)


@given(st.binary(max_size=40))
def test_hostile_bytes_only_ever_raise_bad_record(data):
    for decoder in (decode_record, decode_tick, decode_snapshot, decode_policy):
        with suppress(BadRecord):
            decoder(data)


@given(st.integers(0, 255), st.binary(max_size=300))
def test_hostile_bodies_have_a_mailbox_of_32_bytes_or_none(kind, body):
    with suppress(BadRecord):
        assert len(mailbox_of(kind, body)) == 32


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\x00"])
def test_a_record_without_a_whole_head_is_refused(value):
    with pytest.raises(BadRecord, match="at least 3 bytes"):
        decode_record(value)


@pytest.mark.parametrize("kind", [0, 10, 15, 20, 255])
def test_an_unknown_kind_is_refused(kind):
    with pytest.raises(BadRecord, match=f"kind {kind} is unknown"):
        decode_record(bytes([kind, 0, 0]))
    with pytest.raises(BadRecord, match=f"kind {kind} is unknown"):
        encode_record(kind, 0, b"")


def test_the_largest_record_holds_the_largest_envelope():
    value = encode_record(Kind.ENVELOPE, 0, bytes(262_144))
    assert len(value) == VALUE_MAX == 262_147
    assert len(decode_record(value).body) == 262_144


def test_a_larger_record_is_refused_before_it_is_parsed():
    with pytest.raises(BadRecord, match="at most 262147 bytes, this one 262148"):
        decode_record(b"\xff" * (VALUE_MAX + 1))
    with pytest.raises(BadRecord, match="at most 262144 bytes"):
        encode_record(Kind.ENVELOPE, 0, bytes(262_145))


@pytest.mark.parametrize("shard", [-1, 65_536])
def test_a_shard_that_does_not_fit_is_never_encoded(shard):
    with pytest.raises(BadRecord, match="shard"):
        encode_record(Kind.TICK, shard, b"")


def test_a_shard_is_the_hash_of_the_recipient_modulo_the_shards():
    assert shard_of(B, 64) == int.from_bytes(sha256(B).digest()[:4], "big") % 64 == 42
    assert shard_of(B, 1) == 0


@given(st.binary(min_size=32, max_size=32), st.sampled_from([1, 2, 4, 64]))
def test_a_partition_holds_whole_shards(recipient, partitions):
    shard = shard_of(recipient, 64)
    assert 0 <= shard < 64
    assert partition_of(shard, partitions) == shard % partitions


@pytest.mark.parametrize(("kind", "body"), FROM_DEVICES)
def test_all_that_concerns_a_message_meets_in_the_mailbox_of_its_recipient(kind, body):
    assert mailbox_of(kind, body) == RECIPIENT
    shard = shard_of(RECIPIENT, 64)
    partition, value = route(kind, body, 64, 2)
    assert partition == shard % 2
    assert decode_record(value) == Record(kind=kind, shard=shard, body=body)


@pytest.mark.parametrize(
    ("kind", "least"), [(Kind.ENVELOPE, 208), (Kind.ACK, 153), (Kind.ACK_BATCH, 64), (4, 173)]
)
def test_a_body_too_short_to_name_its_mailbox_is_refused(kind, least):
    assert len(mailbox_of(kind, bytes(least))) == 32
    with pytest.raises(BadRecord, match=f"at least {least} bytes, this one {least - 1}"):
        route(kind, bytes(least - 1), 64, 2)


@pytest.mark.parametrize("kind", [*range(5, 20), 0, 255])
def test_other_kinds_name_no_mailbox(kind):
    with pytest.raises(BadRecord, match="names no mailbox"):
        mailbox_of(kind, bytes(300))


@given(st.integers(0, TIME_MS_MAX))
def test_a_tick_is_read_back(due_at_ms):
    assert decode_tick(encode_tick(due_at_ms)) == due_at_ms


def test_a_tick_has_8_bytes_and_a_time_that_can_be():
    with pytest.raises(BadRecord, match="8 bytes"):
        decode_tick(bytes(9))
    with pytest.raises(BadRecord, match="time"):
        decode_tick(b"\xff" * 8)
    for due_at_ms in (-1, TIME_MS_MAX + 1):
        with pytest.raises(BadRecord, match="time"):
            encode_tick(due_at_ms)


@given(st.integers(0, 2**32 - 1))
def test_a_snapshot_is_read_back(round_number):
    assert decode_snapshot(encode_snapshot(round_number)) == round_number


def test_a_snapshot_has_4_bytes():
    with pytest.raises(BadRecord, match="4 bytes"):
        decode_snapshot(bytes(3))
    for round_number in (-1, 2**32):
        with pytest.raises(BadRecord, match="round"):
            encode_snapshot(round_number)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.binary(min_size=1, max_size=99))
def test_a_policy_is_read_back(number, core_version, body):
    assert decode_policy(encode_policy(number, core_version, body)) == (number, core_version, body)


def test_a_policy_has_a_head_and_something_after_it():
    with pytest.raises(BadRecord, match="more than 6 bytes"):
        decode_policy(bytes(6))
    for number, core_version in ((-1, 1), (2**32, 1), (1, -1), (1, 2**16)):
        with pytest.raises(BadRecord, match="does not fit"):
            encode_policy(number, core_version, b"{}")


def test_bodies_stay_out_of_log_lines():
    assert "sealed" not in repr(decode_record(encode_record(Kind.ENVELOPE, 0, envelope())))
