from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import signing
from schemas.acks import (
    Ack,
    AckBatch,
    AckType,
    SignedAck,
    SignedAckBatch,
    open_signed_ack,
    open_signed_batch,
    sign_ack,
    sign_batch,
)
from schemas.errors import BadAck, BadAddress, BadInput, BadSignature
from schemas.limits import TIME_MS_MAX
from tests.factories import ack, ack_batch, device, envelope
from tests.unit.schemas.golden import (
    KEY_B,
    MESSAGE_ID,
    NOT_ADDRESSES,
    TIME_MS,
    A,
    B,
    cuts,
    flips,
    golden,
)

ids = st.binary(min_size=16, max_size=16)
addresses = st.binary(min_size=32, max_size=32)
types = st.sampled_from(list(AckType)).map(int)
times = st.integers(0, TIME_MS_MAX)
signatures = st.binary(min_size=64, max_size=64)
acks = st.builds(
    Ack,
    ack_type=types,
    message_id=ids,
    sender=addresses,
    timestamp_ms=times,
    signature=signatures,
)
batches = st.builds(
    AckBatch,
    ack_type=types,
    message_ids=st.lists(ids, min_size=1, max_size=20).map(tuple),
    timestamp_ms=times,
    signature=signatures,
)


def test_the_bytes_of_an_ack_are_frozen():
    data = sign_ack(
        key=KEY_B, ack_type=AckType.RECEIPT, message_id=MESSAGE_ID, sender=A, timestamp_ms=TIME_MS
    )
    assert data == golden("ack")
    assert data[:32] == B
    assert data[32:89] == b"\x02" + MESSAGE_ID + A + TIME_MS.to_bytes(8)


def test_the_bytes_of_a_batch_are_frozen():
    data = sign_batch(
        key=KEY_B,
        ack_type=AckType.READ,
        message_ids=(MESSAGE_ID, MESSAGE_ID[::-1]),
        sender=A,
        timestamp_ms=TIME_MS,
    )
    assert data == golden("ack-batch")
    head = B + A + b"\x03\x00\x02"
    assert data[:-64] == head + MESSAGE_ID + MESSAGE_ID[::-1] + TIME_MS.to_bytes(8)


def test_the_signature_covers_the_signer_and_57_bytes_of_the_frame():
    data = golden("ack")
    signing.verify(signing.ACK, data[:32] + data[32:][:57], data[-64:], B)


def test_the_signature_of_a_batch_covers_signer_sender_and_frame():
    data = golden("ack-batch")
    signing.verify(signing.ACK_BATCH, data[:32] + data[32:64] + data[64:-64], data[-64:], B)


def test_an_old_ack_is_still_read():
    signed = open_signed_ack(golden("ack"))
    assert (signed.signer, signed.ack.sender, signed.ack.message_id) == (B, A, MESSAGE_ID)
    assert (signed.ack.ack_type, signed.ack.timestamp_ms) == (AckType.RECEIPT, TIME_MS)


def test_an_old_batch_is_still_read():
    signed = open_signed_batch(golden("ack-batch"))
    assert (signed.signer, signed.sender) == (B, A)
    assert signed.batch.message_ids == (MESSAGE_ID, MESSAGE_ID[::-1])
    assert (signed.batch.ack_type, signed.batch.timestamp_ms) == (AckType.READ, TIME_MS)


@given(acks, addresses)
def test_an_ack_has_121_bytes_and_with_its_signer_153(one, signer):
    assert len(one.encode()) == 121
    assert Ack.decode(one.encode()) == one
    signed = SignedAck(signer=signer, ack=one)
    assert len(signed.encode()) == 153
    assert SignedAck.decode(signed.encode()) == signed
    assert SignedAck.decode(bytearray(signed.encode())) == signed


@given(batches, addresses, addresses)
def test_a_batch_is_read_back_and_has_no_spare_byte(batch, signer, sender):
    assert len(batch.encode()) == 75 + 16 * len(batch.message_ids)
    assert AckBatch.decode(batch.encode()) == batch
    signed = SignedAckBatch(signer=signer, sender=sender, batch=batch)
    assert SignedAckBatch.decode(signed.encode()) == signed
    assert SignedAckBatch.decode(bytearray(signed.encode())) == signed


@pytest.mark.parametrize(
    ("name", "opener"), [("ack", open_signed_ack), ("ack-batch", open_signed_batch)]
)
def test_no_bit_of_a_signed_ack_can_be_turned(name, opener):
    for flipped in flips(golden(name)):
        with pytest.raises((BadAck, BadAddress, BadSignature)):
            opener(flipped)


@pytest.mark.parametrize("decoder", [SignedAck.decode, SignedAckBatch.decode, open_signed_ack])
@pytest.mark.parametrize("name", ["ack", "ack-batch"])
def test_no_byte_can_be_cut_off_or_added(name, decoder):
    for data in cuts(golden(name)):
        with pytest.raises(BadAck):
            decoder(data)


@given(st.binary(max_size=300))
def test_hostile_bytes_only_ever_raise_bad_ack(data):
    for decoder in (Ack.decode, SignedAck.decode, AckBatch.decode, SignedAckBatch.decode):
        with suppress(BadAck):
            decoder(data)


@given(st.binary(min_size=121, max_size=121), st.integers(0, 4))
def test_bytes_that_look_like_an_ack_are_read_exactly_or_refused(data, ack_type):
    data = bytes([ack_type]) + data[1:]
    with suppress(BadAck):
        assert Ack.decode(data).encode() == data
    with pytest.raises(BadInput):
        open_signed_ack(B + data)


@given(st.integers(0, 5), st.binary(min_size=16 * 5 + 72, max_size=16 * 5 + 72))
def test_bytes_that_look_like_a_batch_are_read_exactly_or_refused(count, rest):
    data = b"\x02" + count.to_bytes(2) + rest
    with suppress(BadAck):
        assert AckBatch.decode(data).encode() == data
    with pytest.raises(BadInput):
        open_signed_batch(B + A + data)


@pytest.mark.parametrize("ack_type", [0, 4, 255])
def test_an_unknown_type_is_refused(ack_type):
    frame = bytes([ack_type]) + golden("ack")[33:]
    with pytest.raises(BadAck, match=f"ack type {ack_type} is unknown"):
        Ack.decode(frame)
    with pytest.raises(BadAck, match="unknown"):
        AckBatch.decode(bytes([ack_type]) + golden("ack-batch")[65:])
    with pytest.raises(BadAck, match="unknown"):
        ack(envelope(), ack_type=ack_type)


@pytest.mark.parametrize("timestamp_ms", [TIME_MS_MAX + 1, 2**63, 2**64 - 1])
def test_a_time_that_no_table_could_hold_is_refused(timestamp_ms):
    data = golden("ack")[32:]
    with pytest.raises(BadAck, match="time"):
        Ack.decode(data[:49] + timestamp_ms.to_bytes(8) + data[57:])
    with pytest.raises(BadAck, match="time"):
        ack(envelope(), timestamp_ms=timestamp_ms)


def test_the_last_time_is_accepted():
    assert open_signed_ack(ack(envelope(), timestamp_ms=TIME_MS_MAX)).ack.timestamp_ms


def test_a_batch_has_up_to_1000_ids():
    fields = {"key": KEY_B, "ack_type": AckType.RECEIPT, "sender": A, "timestamp_ms": TIME_MS}
    full = sign_batch(message_ids=(MESSAGE_ID,) * 1_000, **fields)
    assert len(full) == 16_139
    assert len(open_signed_batch(full).batch.message_ids) == 1_000
    with pytest.raises(BadAck, match=r"1\.\.1000 acks, not 1001"):
        sign_batch(message_ids=(MESSAGE_ID,) * 1_001, **fields)
    with pytest.raises(BadAck, match=r"1\.\.1000 acks, not 0"):
        sign_batch(message_ids=(), **fields)


@pytest.mark.parametrize("count", [0, 1_001, 65_535])
def test_a_batch_of_any_other_number_is_refused(count):
    frame = b"\x02" + count.to_bytes(2) + bytes(16 * count) + bytes(72)
    with pytest.raises(BadAck, match=r"a batch of 1\.\.1000"):
        AckBatch.decode(frame)


def test_a_batch_that_says_another_count_than_it_has_is_refused():
    frame = golden("ack-batch")[64:]
    with pytest.raises(BadAck, match="a batch of 3 acks does not have 107 bytes"):
        AckBatch.decode(frame[:1] + b"\x00\x03" + frame[3:])


@pytest.mark.parametrize(
    ("name", "value"),
    [("message_id", bytes(15)), ("sender", bytes(31)), ("signature", b""), ("timestamp_ms", -1)],
)
def test_a_field_that_does_not_fit_is_never_encoded(name, value):
    with pytest.raises(BadAck, match=name.removeprefix("timestamp_ms") or "time"):
        replace(open_signed_ack(golden("ack")).ack, **{name: value}).encode()


def test_ids_and_addresses_of_another_size_are_never_encoded():
    signed = open_signed_batch(golden("ack-batch"))
    with pytest.raises(BadAck, match="message_id has 16 bytes, not 1"):
        replace(signed.batch, message_ids=(b"x",)).encode()
    with pytest.raises(BadAck, match="sender has 32 bytes, not 1"):
        replace(signed, sender=b"x").encode()
    with pytest.raises(BadAck, match="signer has 32 bytes, not 1"):
        replace(open_signed_ack(golden("ack")), signer=b"x").encode()


@pytest.mark.parametrize("sender", NOT_ADDRESSES, ids=bytes.hex)
def test_an_ack_to_a_sender_that_cannot_exist_is_refused(sender):
    with pytest.raises(BadAddress):
        open_signed_ack(ack(envelope(), sender=sender))


def test_a_receipt_cannot_be_signed_in_the_name_of_another():
    forged = replace(open_signed_ack(ack(envelope(), signer=device(3))), signer=B)
    with pytest.raises(BadSignature):
        open_signed_ack(forged.encode())


def test_an_ack_cannot_be_made_of_a_batch_of_one():
    batch = open_signed_batch(ack_batch([envelope()])).batch
    moved = replace(open_signed_ack(ack(envelope())).ack, signature=batch.signature)
    with pytest.raises(BadSignature):
        open_signed_ack(ack(envelope())[:32] + moved.encode())
