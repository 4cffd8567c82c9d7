from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import signing
from schemas.errors import BadAddress, BadInput, BadSignal, BadSignature
from schemas.limits import TIME_MS_MAX
from schemas.signals import Signal, SignalKind, open_signed_signal, sign_signal
from tests.factories import address, device, envelope, lane_signal, signal
from tests.unit.schemas.golden import (
    KEY_A,
    KEY_B,
    MESSAGE_ID,
    NOT_ADDRESSES,
    SESSION_ID,
    TIME_MS,
    A,
    B,
    cuts,
    flips,
    golden,
)

VECTORS = ["signal-nak", "signal-cancel", "signal-void"]
OF_MESSAGE = [kind for kind in SignalKind if kind < SignalKind.VOID]
OF_LANE = [SignalKind.VOID, SignalKind.ELSEWHERE]
WITH_ANY_ARG = [SignalKind.NAK, SignalKind.TERM]


@st.composite
def signals(draw):
    kind = draw(st.sampled_from(list(SignalKind)))
    of_lane = kind in OF_LANE
    args = st.integers(1 if of_lane else 0, 2**32 - 1)
    return Signal(
        kind=kind,
        priority=draw(st.integers(0, 2)) if of_lane else None,
        signer=draw(st.binary(min_size=32, max_size=32)),
        peer=draw(st.binary(min_size=32, max_size=32)),
        message_id=None if of_lane else draw(st.binary(min_size=16, max_size=16)),
        hash_prefix=None if of_lane else draw(st.binary(min_size=16, max_size=16)),
        session_id=draw(st.binary(min_size=32, max_size=32)) if of_lane else None,
        arg=draw(args) if of_lane or kind in WITH_ANY_ARG else 0,
        time_ms=draw(st.integers(0, TIME_MS_MAX)),
        signature=draw(st.binary(min_size=64, max_size=64)),
    )


def test_the_bytes_of_signals_are_frozen():
    about = {"message_id": MESSAGE_ID, "hash_prefix": golden("envelope-hash")[:16]}
    nak = sign_signal(key=KEY_B, kind=SignalKind.NAK, peer=A, arg=60, time_ms=TIME_MS, **about)
    cancel = sign_signal(key=KEY_A, kind=SignalKind.CANCEL, peer=B, time_ms=TIME_MS, **about)
    void = sign_signal(
        key=KEY_A,
        kind=SignalKind.VOID,
        peer=B,
        session_id=SESSION_ID,
        priority=2,
        arg=8,
        time_ms=TIME_MS,
    )
    assert [nak, cancel, void] == [golden(name) for name in VECTORS]


def test_every_field_stands_where_the_protocol_says():
    data = golden("signal-nak")
    assert (data[0], data[1:33], data[33:65]) == (0x10, B, A)
    assert (data[65:81], data[81:97]) == (MESSAGE_ID, golden("envelope-hash")[:16])
    assert (int.from_bytes(data[97:101]), int.from_bytes(data[101:109])) == (60, TIME_MS)
    assert golden("signal-void")[0] == 0x32
    assert golden("signal-void")[65:97] == SESSION_ID


def test_the_signature_covers_the_first_109_bytes():
    data = golden("signal-nak")
    signing.verify(signing.SIGNAL, data[:109], data[109:], B)


def test_an_old_signal_of_a_message_is_still_read():
    nak = open_signed_signal(golden("signal-nak"))
    assert (nak.kind, nak.arg, nak.time_ms) == (SignalKind.NAK, 60, TIME_MS)
    assert (nak.message_id, nak.hash_prefix) == (MESSAGE_ID, golden("envelope-hash")[:16])
    assert (nak.priority, nak.session_id) == (None, None)


def test_an_old_signal_of_a_lane_is_still_read():
    void = open_signed_signal(golden("signal-void"))
    assert (void.kind, void.priority, void.session_id) == (SignalKind.VOID, 2, SESSION_ID)
    assert (void.arg, void.message_id, void.hash_prefix) == (8, None, None)


@given(signals())
def test_a_signal_has_173_bytes_and_is_read_back(one):
    assert len(one.encode()) == 173
    assert Signal.decode(one.encode()) == one
    assert Signal.decode(bytearray(one.encode())) == one


@pytest.mark.parametrize("name", VECTORS)
def test_no_bit_of_a_signed_signal_can_be_turned(name):
    for flipped in flips(golden(name)):
        with pytest.raises((BadSignal, BadAddress, BadSignature)):
            open_signed_signal(flipped)


@pytest.mark.parametrize("name", VECTORS)
def test_no_byte_can_be_cut_off_or_added(name):
    for data in cuts(golden(name)):
        with pytest.raises(BadSignal):
            Signal.decode(data)


@given(st.binary(max_size=200))
def test_hostile_bytes_only_ever_raise_bad_signal(data):
    with suppress(BadSignal):
        Signal.decode(data)


@given(st.binary(min_size=173, max_size=173), st.integers(0x0F, 0x43), st.booleans())
def test_bytes_that_look_like_a_signal_are_read_exactly_or_refused(data, kind, plausible):
    data = bytes([kind]) + data[1:101] + bytes(3 * plausible) + data[101 + 3 * plausible :]
    with suppress(BadSignal):
        assert Signal.decode(data).encode() == data
    with pytest.raises(BadInput):
        open_signed_signal(data)


def test_every_other_kind_is_refused():
    known = {0x10, 0x11, 0x12, 0x13, 0x20, 0x30, 0x31, 0x32, 0x40, 0x41, 0x42}
    for kind in set(range(256)) - known:
        with pytest.raises(BadSignal, match=f"kind 0x{kind:02x} is unknown"):
            Signal.decode(bytes([kind]) + golden("signal-cancel")[1:])


@pytest.mark.parametrize("kind", [k for k in OF_MESSAGE if k != SignalKind.CANCEL])
def test_a_word_of_the_recipient_concerns_its_own_mailbox(kind):
    said = open_signed_signal(signal(envelope(), kind=kind))
    assert (said.mailbox, said.sender) == (address(device(2)), address(device(1)))
    assert said.mailbox == said.signer


def test_a_word_of_the_sender_concerns_the_mailbox_of_its_peer():
    for data in (signal(envelope()), lane_signal(), lane_signal(kind=SignalKind.ELSEWHERE)):
        said = open_signed_signal(data)
        assert (said.mailbox, said.sender) == (address(device(2)), address(device(1)))
        assert said.sender == said.signer


@pytest.mark.parametrize("kind", OF_LANE)
@pytest.mark.parametrize("priority", [0, 1, 2])
def test_a_lane_signal_carries_its_priority_in_the_kind(kind, priority):
    data = lane_signal(kind=kind, priority=priority, counter=5)
    assert data[0] == kind + priority
    said = open_signed_signal(data)
    assert (said.kind, said.priority, said.arg) == (kind, priority, 5)


@pytest.mark.parametrize("kind", OF_LANE)
def test_counters_start_at_1(kind):
    with pytest.raises(BadSignal, match="counters start at 1"):
        lane_signal(kind=kind, counter=0)
    data = golden("signal-void")
    with pytest.raises(BadSignal, match="counters start at 1"):
        Signal.decode(bytes([kind]) + data[1:97] + bytes(4) + data[101:])


@pytest.mark.parametrize("kind", [k for k in OF_MESSAGE if k not in WITH_ANY_ARG])
def test_a_kind_without_arg_must_not_have_one(kind):
    with pytest.raises(BadSignal, match=f"{kind.name} has no arg"):
        signal(envelope(), kind=kind, arg=1)
    data = golden("signal-nak")
    with pytest.raises(BadSignal, match=f"{kind.name} has no arg"):
        Signal.decode(bytes([kind]) + data[1:])


@pytest.mark.parametrize("time_ms", [TIME_MS_MAX + 1, 2**64 - 1])
def test_a_time_that_no_table_could_hold_is_refused(time_ms):
    data = golden("signal-cancel")
    with pytest.raises(BadSignal, match="time"):
        Signal.decode(data[:101] + time_ms.to_bytes(8) + data[109:])
    with pytest.raises(BadSignal, match="time"):
        signal(envelope(), time_ms=time_ms)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("signal-nak", {"signer": b""}),
        ("signal-nak", {"peer": bytes(31)}),
        ("signal-nak", {"signature": bytes(65)}),
        ("signal-nak", {"arg": 2**32}),
        ("signal-nak", {"arg": -1}),
        ("signal-nak", {"message_id": None}),
        ("signal-nak", {"hash_prefix": None}),
        ("signal-nak", {"message_id": bytes(15), "hash_prefix": bytes(17)}),
        ("signal-nak", {"session_id": bytes(32)}),
        ("signal-nak", {"priority": 0}),
        ("signal-void", {"priority": None}),
        ("signal-void", {"priority": 3}),
        ("signal-void", {"priority": -1}),
        ("signal-void", {"session_id": None}),
        ("signal-void", {"session_id": bytes(31)}),
        ("signal-void", {"message_id": bytes(16)}),
    ],
)
def test_a_signal_that_does_not_fit_is_never_encoded(name, changes):
    with pytest.raises(BadSignal):
        replace(Signal.decode(golden(name)), **changes).encode()


@pytest.mark.parametrize("peer", NOT_ADDRESSES, ids=bytes.hex)
def test_a_signal_to_a_peer_that_cannot_exist_is_refused(peer):
    with pytest.raises(BadAddress):
        open_signed_signal(signal(envelope(), peer=peer))


def test_nobody_else_can_cancel():
    forged = replace(open_signed_signal(signal(envelope(), signer=device(3))), signer=A)
    with pytest.raises(BadSignature):
        open_signed_signal(forged.encode())
