import zlib
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import blob
from pipelines.blob import Header, decode, decode_box, encode, encode_box
from pipelines.lane import Lane, Pending
from pipelines.shard import Shard
from pipelines.turn import Mailbox
from schemas.errors import StateDamaged
from schemas.policy import Policy
from schemas.signals import SignalKind
from tests.factories import NOW_MS, NOW_S, ack, address, device, envelope, lane_signal
from tests.world import World

GOLDEN = Path(__file__).parents[1] / "golden" / "shard-v1.blob"
BOB, CAROL = device(2), device(3)


def golden_log():
    """The log that made the golden file: everything a state can hold is in it once."""
    world = World(Policy(recent_ids_max=8, held_max=50))
    for n in (1, 2, 5, 6, 9):
        world.arrive(envelope(n=n))
    world.ack(ack(envelope(n=1)))
    world.tick(NOW_MS + 300_000)
    world.arrive(envelope(n=12))
    world.signal(lane_signal(kind=SignalKind.VOID, counter=15))
    world.signal(lane_signal(kind=SignalKind.ELSEWHERE, counter=16))
    world.arrive(envelope(n=20, counter=0, recipient=CAROL, not_before_s=NOW_S + 86_400))
    world.arrive(envelope(n=21, counter=0, recipient=CAROL, priority=2))
    world.ack(ack(envelope(n=21, counter=0, recipient=CAROL, priority=2), signer=CAROL))
    return world


def sealed(body, version=blob.VERSION):
    return b"fps" + bytes((version,)) + zlib.crc32(body).to_bytes(4, "big") + body


def test_the_golden_state_of_version_1_loads_and_is_written_back_as_it_was():
    data = GOLDEN.read_bytes()
    assert encode(decode(data)) == data
    shard = Shard(decode(data))
    for owner in [*shard.header.boxes]:
        shard._touch(owner)
    assert shard.save() == data


def test_the_golden_state_of_version_1_still_means_the_same():
    header = decode(GOLDEN.read_bytes())
    assert (header.last_offset, header.time_ms, header.policy_number) == (13, NOW_MS + 300_000, 1)
    assert Policy.from_json(header.policy) == Policy(recent_ids_max=8, held_max=50)
    assert len(header.recent) == 2 * 16
    box = decode_box(bytes(header.boxes[address(BOB)][1]))
    (lane,) = box.lanes.values()
    assert (box.position, lane.expected, lane.skipped) == (5, 10, [(3, 4), (7, 8)])
    assert (list(lane.held), lane.ahead, len(lane.pending)) == ([12], {15: False, 16: True}, 5)
    other = decode_box(bytes(header.boxes[address(CAROL)][1]))
    assert [len(lane.pending) for lane in other.lanes.values()] == [1, 0]


def test_the_rules_of_today_still_make_the_golden_state():
    assert golden_log().blob == GOLDEN.read_bytes()


def test_a_header_comes_back_as_it_was():
    header = Header(last_offset=7, time_ms=9, policy_number=2, policy=b"{}", recent=b"x" * 16)
    assert decode(encode(header)) == header
    assert decode(encode(Header())) == Header()


def test_a_pending_message_costs_at_most_sixty_bytes():
    many = 1_000
    lane = Lane(
        expected=many,
        keep_until_s=NOW_S,
        pending={
            n.to_bytes(16, "big"): Pending(b"h" * 8, NOW_S, n, n, 0) for n in range(1, many + 1)
        },
    )
    assert len(encode_box(Mailbox(position=many, lanes={b"k" * 65: lane}))) <= 60 * many


def test_every_cut_of_a_state_is_found_out():
    data = GOLDEN.read_bytes()
    for size in range(len(data)):
        with pytest.raises(StateDamaged):
            decode(data[:size])


def test_every_flipped_byte_of_a_state_is_found_out():
    data = GOLDEN.read_bytes()
    for at in range(len(data)):
        with pytest.raises(StateDamaged):
            decode(data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :])


@pytest.mark.parametrize("data", [b"", b"fps", b"PAR1" + bytes(60), b"fpx\x01" + bytes(60)])
def test_what_is_not_ours_is_found_out(data):
    with pytest.raises(StateDamaged, match=r"not one of ours.*farpost rebuild"):
        decode(data)


@pytest.mark.parametrize("version", [0, 2, 255])
def test_a_state_of_an_unknown_version_is_not_guessed_at(version):
    data = sealed(encode(Header())[8:], version)
    with pytest.raises(StateDamaged, match=f"version {version} is unknown"):
        decode(data)


def test_an_old_version_is_migrated_step_by_step(monkeypatch):
    body = encode(Header(last_offset=5))[8:]
    monkeypatch.setattr(blob, "VERSION", 3)
    steps = {1: lambda old: old + b"?", 2: lambda old: old.removesuffix(b"?")}
    monkeypatch.setattr(blob, "_MIGRATIONS", steps)
    assert decode(sealed(body, version=1)) == Header(last_offset=5)


@given(st.binary(max_size=200))
def test_hostile_bytes_with_a_good_checksum_only_ever_raise_state_damaged(body):
    for data in (body, sealed(body)):
        with suppress(StateDamaged):
            decode(data)


@given(st.binary(max_size=100))
def test_a_mailbox_that_cannot_be_read_only_ever_raises_state_damaged(data):
    with suppress(StateDamaged):
        decode_box(data)


def test_nesting_without_end_only_ever_raises_state_damaged():
    for body in (b"\x91" * 100_000, b"\x81" * 100_000):
        with pytest.raises(StateDamaged):
            decode(sealed(body))
        with pytest.raises(StateDamaged):
            decode_box(body)
    boxes = msgspec.msgpack.encode([1, 1, 1, b"", b""])[1:] + b"\x81\xc4\x01x\x92\x00"
    with pytest.raises(StateDamaged):
        decode(sealed(b"\x96" + boxes + b"\x91" * 100_000 + b"\x00"))
