from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.admit import admit
from pipelines.inputs import (
    Acked,
    Arrived,
    Cancelled,
    CounterPassed,
    Noted,
    PolicyChanged,
    SnapshotAsked,
    Taken,
    Ticked,
)
from schemas.acks import AckType
from schemas.envelope import Envelope, envelope_hash
from schemas.errors import BadAck, BadEnvelope, BadInput, BadRecord, BadSignature, DeliveryError
from schemas.records import (
    Kind,
    encode_policy,
    encode_record,
    encode_snapshot,
    encode_tick,
    shard_of,
)
from schemas.signals import SignalKind
from tests.factories import (
    NOW_MS,
    ack,
    ack_batch,
    address,
    device,
    envelope,
    lane_signal,
    message_id,
    session_id,
    signal,
)
from tests.world import World

ALICE, BOB = device(1), device(2)
SHARDS = 16
HOME = shard_of(address(BOB), SHARDS)
DATA = envelope(n=1)


def opened(kind, body, shard=HOME):
    return admit(encode_record(kind, shard, body), shard, SHARDS)


def test_an_envelope_arrives_with_its_hash_and_bytes():
    assert opened(Kind.ENVELOPE, DATA) == Arrived(
        mailbox=address(BOB),
        envelope=Envelope.decode(DATA),
        envelope_hash=envelope_hash(DATA),
        raw=DATA,
    )


@pytest.mark.parametrize(("ack_type", "read"), [(AckType.RECEIPT, False), (AckType.READ, True)])
def test_an_ack_belongs_to_the_mailbox_of_its_signer(ack_type, read):
    frame = ack(DATA, ack_type=ack_type)
    assert opened(Kind.ACK, frame) == Acked(
        mailbox=address(BOB),
        sender=address(ALICE),
        message_ids=(message_id(1),),
        read=read,
        said_at_ms=NOW_MS,
        proof=frame,
    )


@pytest.mark.parametrize(("ack_type", "read"), [(AckType.RECEIPT, False), (AckType.READ, True)])
def test_a_batch_of_acks_names_all_its_messages(ack_type, read):
    frame = ack_batch([DATA, envelope(n=2)], ack_type=ack_type)
    assert opened(Kind.ACK_BATCH, frame) == Acked(
        mailbox=address(BOB),
        sender=address(ALICE),
        message_ids=(message_id(1), message_id(2)),
        read=read,
        said_at_ms=NOW_MS,
        proof=frame,
    )


def test_the_hubs_own_word_is_not_taken_from_others():
    with pytest.raises(BadAck, match="0x01"):
        opened(Kind.ACK, ack(DATA, ack_type=AckType.DELIVERY))
    with pytest.raises(BadAck, match="0x01"):
        opened(Kind.ACK_BATCH, ack_batch([DATA], ack_type=AckType.DELIVERY))


@pytest.mark.parametrize(
    ("kind", "made"), [(SignalKind.TAKEN, Taken), (SignalKind.CANCEL, Cancelled)]
)
def test_a_settling_signal_names_the_envelope_by_its_hash(kind, made):
    frame = signal(DATA, kind=kind)
    assert opened(Kind.SIGNAL, frame) == made(
        mailbox=address(BOB),
        sender=address(ALICE),
        message_id=message_id(1),
        short_hash=envelope_hash(DATA)[:8],
        said_at_ms=NOW_MS,
        proof=frame,
    )


@pytest.mark.parametrize(
    ("kind", "name", "arg"),
    [
        (SignalKind.NAK, "nak", 30),
        (SignalKind.TERM, "term", 2),
        (SignalKind.UNDECRYPTABLE, "undecryptable", 0),
    ],
)
def test_other_signals_of_the_recipient_are_noted(kind, name, arg):
    frame = signal(DATA, kind=kind, arg=arg)
    assert opened(Kind.SIGNAL, frame) == Noted(
        mailbox=address(BOB),
        sender=address(ALICE),
        message_id=message_id(1),
        kind=name,
        argument=arg,
        said_at_ms=NOW_MS,
        proof=frame,
    )


@pytest.mark.parametrize(
    ("kind", "elsewhere"), [(SignalKind.VOID, False), (SignalKind.ELSEWHERE, True)]
)
def test_a_lane_signal_of_the_sender_belongs_to_the_mailbox_of_its_peer(kind, elsewhere):
    frame = lane_signal(kind=kind, counter=8, priority=2)
    assert opened(Kind.SIGNAL, frame) == CounterPassed(
        mailbox=address(BOB),
        sender=address(ALICE),
        session_id=session_id(1),
        priority=2,
        counter=8,
        elsewhere=elsewhere,
        said_at_ms=NOW_MS,
        proof=frame,
    )


def test_records_of_the_hub_itself_have_no_mailbox():
    assert opened(Kind.TICK, encode_tick(NOW_MS)) == Ticked()
    assert opened(Kind.SNAPSHOT, encode_snapshot(4)) == SnapshotAsked(round=4)
    changed = opened(Kind.POLICY, encode_policy(3, 1, b"{}"))
    assert changed == PolicyChanged(number=3, body=b"{}")


@pytest.mark.parametrize("kind", [Kind.S2_ACK, Kind.STATEMENT, Kind.PRESENCE, Kind.REDRIVE])
def test_kinds_that_are_not_served_yet_are_refused(kind):
    with pytest.raises(BadRecord, match=f"kind {int(kind)} are not served"):
        opened(kind, b"")


@pytest.mark.parametrize("kind", [Kind.TICK, Kind.SNAPSHOT, Kind.POLICY])
def test_records_of_the_hub_are_checked_too(kind):
    with pytest.raises(BadRecord):
        opened(kind, b"x")


def test_a_record_that_names_another_shard_is_refused():
    value = encode_record(Kind.TICK, HOME, encode_tick(NOW_MS))
    with pytest.raises(BadRecord, match=f"names shard {HOME} but lies where shard {HOME + 1}"):
        admit(value, HOME + 1, SHARDS)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.ENVELOPE, DATA),
        (Kind.ACK, ack(DATA)),
        (Kind.ACK_BATCH, ack_batch([DATA])),
        (Kind.SIGNAL, signal(DATA)),
        (Kind.SIGNAL, lane_signal()),
    ],
)
def test_a_mailbox_of_another_shard_is_refused(kind, body):
    with pytest.raises(BadRecord, match="does not belong to shard"):
        opened(kind, body, shard=(HOME + 1) % SHARDS)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.ENVELOPE, DATA),
        (Kind.ACK, ack(DATA)),
        (Kind.ACK_BATCH, ack_batch([DATA])),
        (Kind.SIGNAL, signal(DATA)),
        (Kind.SIGNAL, lane_signal()),
    ],
)
def test_one_wrong_bit_of_a_signature_is_enough(kind, body):
    with pytest.raises(BadSignature):
        opened(kind, body[:-1] + bytes((body[-1] ^ 1,)))


def test_a_frame_of_one_kind_does_not_pass_for_another():
    with pytest.raises(BadEnvelope):
        opened(Kind.ENVELOPE, ack(DATA))
    with pytest.raises(BadAck):
        opened(Kind.ACK, DATA)


VALUES = [
    encode_record(kind, HOME, body)
    for kind, body in (
        (Kind.ENVELOPE, DATA),
        (Kind.ACK, ack(DATA)),
        (Kind.ACK_BATCH, ack_batch([DATA])),
        (Kind.SIGNAL, signal(DATA)),
        (Kind.SIGNAL, lane_signal()),
    )
]


@given(value=st.sampled_from(VALUES), data=st.data())
def test_every_flipped_bit_of_a_signed_record_is_refused(value, data):
    bit = data.draw(st.integers(8, len(value) * 8 - 1))  # the kind is nobody's word
    flipped = bytearray(value)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DeliveryError):
        admit(bytes(flipped), HOME, SHARDS)


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("value", VALUES)
def test_a_record_of_another_kind_than_it_was_changes_nothing(value, bit):
    world = World()
    answer = world.value(bytes((value[0] ^ 1 << bit, 0, 0)) + value[3:])
    assert answer.outcome == "quarantined"
    assert (world.header.boxes, world.header.policy_number) == ({}, 0)


@given(value=st.sampled_from(VALUES), data=st.data())
def test_every_cut_of_a_record_is_refused(value, data):
    with pytest.raises(DeliveryError):
        admit(value[: data.draw(st.integers(0, len(value) - 1))], HOME, SHARDS)


@given(kind=st.integers(0, 255), body=st.binary(max_size=400))
def test_hostile_bytes_only_ever_raise_bad_input(kind, body):
    for value in (body, bytes((kind,)) + HOME.to_bytes(2, "big") + body):
        with suppress(BadInput):
            admit(value, HOME, SHARDS)
