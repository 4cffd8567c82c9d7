from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import (
    ENVELOPE_MAX,
    FLAG_EMERGENCY,
    FLAG_FIRST_FLIGHT,
    FLAG_RESEAL,
    HEADER_SIZE,
    NEVER,
    PAYLOAD_MAX,
    Envelope,
    MessageClass,
    envelope_hash,
    open_signed,
    seal_signed,
)
from schemas.errors import BadAddress, BadEnvelope, BadInput, BadSignature, TooLarge
from tests.factories import address, device, envelope
from tests.unit.schemas.golden import (
    KEY_A,
    MESSAGE_ID,
    NOT_ADDRESSES,
    SESSION_ID,
    A,
    B,
    cuts,
    flips,
    golden,
)

u32 = st.integers(0, 2**32 - 1)
envelopes = st.builds(
    Envelope,
    message_class=st.sampled_from(list(MessageClass)).map(int),
    priority=st.integers(0, 2),
    flags=st.integers(0, 7),
    suite=st.integers(0, 1),
    message_id=st.binary(min_size=16, max_size=16),
    recipient=st.binary(min_size=32, max_size=32),
    sender=st.binary(min_size=32, max_size=32),
    session_id=st.binary(min_size=32, max_size=32),
    counter=u32,
    created_at_s=u32,
    expires_at_s=u32,
    not_before_s=u32,
    collapse_tag=st.integers(0, 2**64 - 1),
    payload=st.binary(max_size=300),
    signature=st.binary(min_size=64, max_size=64),
)


def golden_envelope():
    return seal_signed(
        key=KEY_A,
        recipient=B,
        message_class=MessageClass.CRITICAL,
        priority=2,
        flags=FLAG_FIRST_FLIGHT | FLAG_EMERGENCY,
        suite=1,
        message_id=MESSAGE_ID,
        session_id=SESSION_ID,
        counter=7,
        created_at_s=1_800_000_000,
        expires_at_s=1_800_604_800,
        not_before_s=1_800_003_600,
        collapse_tag=0x0102030405060708,
        payload=b"sealed",
    )


def test_the_bytes_of_version_1_are_frozen():
    assert golden_envelope() == golden("envelope")
    assert envelope_hash(golden("envelope")) == golden("envelope-hash")


def test_every_field_stands_where_the_protocol_says():
    data = golden("envelope")
    assert data[0:4] == bytes([1, 3, 2, 0x15])
    assert (data[4:20], data[20:52], data[52:84], data[84:116]) == (MESSAGE_ID, B, A, SESSION_ID)
    assert int.from_bytes(data[116:120]) == 7
    assert int.from_bytes(data[120:124]) == 1_800_000_000
    assert int.from_bytes(data[124:128]) == 1_800_604_800
    assert int.from_bytes(data[128:132]) == 1_800_003_600
    assert data[132:140] == bytes(range(1, 9))
    assert int.from_bytes(data[140:144]) == len(b"sealed")
    assert data[144:-64] == b"sealed"
    assert envelope_hash(data) == sha256(data[:-64]).digest()


def test_an_old_envelope_is_still_read():
    opened = open_signed(golden("envelope"))
    assert (opened.message_class, opened.priority, opened.suite) == (MessageClass.CRITICAL, 2, 1)
    assert opened.flags == FLAG_FIRST_FLIGHT | FLAG_EMERGENCY
    assert not opened.flags & FLAG_RESEAL
    assert (opened.message_id, opened.recipient, opened.sender) == (MESSAGE_ID, B, A)
    assert (opened.session_id, opened.counter) == (SESSION_ID, 7)
    assert (opened.created_at_s, opened.expires_at_s) == (1_800_000_000, 1_800_604_800)
    assert (opened.not_before_s, opened.collapse_tag) == (1_800_003_600, 0x0102030405060708)
    assert (opened.payload, opened.signature) == (b"sealed", golden("envelope")[-64:])


@given(envelopes)
def test_what_is_encoded_is_decoded(one):
    data = one.encode()
    assert Envelope.decode(data) == one
    assert Envelope.decode(bytearray(data)) == one
    assert data[:HEADER_SIZE] == one.header()
    assert len(data) == 208 + len(one.payload)


def test_no_bit_of_a_signed_envelope_can_be_turned():
    for flipped in flips(golden("envelope")):
        with pytest.raises((BadEnvelope, BadAddress, BadSignature)):
            open_signed(flipped)


def test_no_byte_can_be_cut_off_or_added():
    for data in cuts(golden("envelope")):
        with pytest.raises(BadEnvelope):
            Envelope.decode(data)


@given(st.binary(max_size=400))
def test_hostile_bytes_only_ever_raise_bad_envelope(data):
    with suppress(BadEnvelope):
        Envelope.decode(data)


@given(st.binary(min_size=208, max_size=400), st.data())
def test_bytes_that_look_like_an_envelope_are_read_exactly_or_refused(data, draw):
    head = bytes([1, draw.draw(st.integers(0, 5)), draw.draw(st.integers(0, 3))])
    data = head + data[3:140] + (len(data) - 208).to_bytes(4) + data[144:]
    with suppress(BadEnvelope):
        assert Envelope.decode(data).encode() == data
    with pytest.raises(BadInput):
        open_signed(data)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 0, "version 0 is unknown"),
        (0, 2, "version 2 is unknown"),
        (1, 5, "class 5 is unknown"),
        (1, 255, "class 255 is unknown"),
        (2, 3, r"priority 3 is not in 0\.\.2"),
        (3, 0x08, "flag bit 3 is reserved"),
        (3, 0x20, "suite 2 is unknown"),
        (3, 0xF0, "suite 15 is unknown"),
        (140, 1, "payload length 16777222 does not fit"),
        (143, 5, "payload length 5 does not fit"),
        (143, 7, "payload length 7 does not fit"),
    ],
)
def test_what_is_unknown_is_refused(at, value, message):
    data = bytearray(golden("envelope"))
    data[at] = value
    with pytest.raises(BadEnvelope, match=message):
        Envelope.decode(bytes(data))


def test_the_largest_envelope_fits_exactly():
    data = envelope(payload=bytes(PAYLOAD_MAX))
    assert len(data) == ENVELOPE_MAX == 262_144
    assert len(open_signed(data).payload) == 261_936


def test_the_smallest_envelope_has_no_payload():
    assert len(envelope(payload=b"")) == 208
    assert open_signed(envelope(payload=b"")).payload == b""


def test_an_oversized_envelope_is_refused_before_it_is_parsed():
    class Unreadable(bytes):
        def __getitem__(self, _):
            raise AssertionError("parsed")

    data = Unreadable(b"\xff" * (ENVELOPE_MAX + 1))
    with pytest.raises(TooLarge, match="at most 262144 bytes, this one 262145"):
        Envelope.decode(data)
    with pytest.raises(TooLarge):
        open_signed(data)


def test_a_payload_that_is_too_large_is_not_sealed():
    with pytest.raises(TooLarge, match="at most 261936 bytes, not 261937"):
        envelope(payload=bytes(PAYLOAD_MAX + 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message_class", 5),
        ("message_class", -1),
        ("priority", 3),
        ("priority", -1),
        ("flags", 8),
        ("suite", 2),
        ("message_id", bytes(15)),
        ("recipient", bytes(33)),
        ("sender", b""),
        ("session_id", bytes(31)),
        ("signature", bytes(63)),
        ("counter", 2**32),
        ("created_at_s", -1),
        ("expires_at_s", NEVER + 1),
        ("not_before_s", 2**32),
        ("collapse_tag", 2**64),
    ],
)
def test_a_field_that_does_not_fit_is_never_encoded(name, value):
    with pytest.raises(BadEnvelope, match=name.removeprefix("message_c")):
        replace(Envelope.decode(golden("envelope")), **{name: value}).encode()


@pytest.mark.parametrize("recipient", NOT_ADDRESSES, ids=bytes.hex)
def test_nothing_is_accepted_for_a_recipient_that_cannot_exist(recipient):
    with pytest.raises(BadAddress):
        open_signed(envelope(recipient=recipient))


def test_a_sender_cannot_be_borrowed():
    forged = replace(Envelope.decode(envelope(sender=device(1))), sender=address(device(3)))
    with pytest.raises(BadSignature):
        open_signed(forged.encode())


def test_the_hash_covers_everything_but_the_signature():
    data = golden("envelope")
    assert envelope_hash(data[:-64] + bytes(64)) == envelope_hash(data)
    hashes = {envelope_hash(flipped + data[-64:]) for flipped in flips(data[:-64])}
    assert len(hashes) == 150 * 8
    assert envelope_hash(data) not in hashes


def test_payload_and_signature_stay_out_of_log_lines():
    shown = repr(Envelope.decode(golden("envelope")))
    assert "sealed" not in shown
    assert "signature" not in shown
