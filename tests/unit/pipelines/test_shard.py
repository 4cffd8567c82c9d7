import pytest

from pipelines import shard as shard_module
from pipelines.admit import admit
from pipelines.blob import Header, decode_box
from pipelines.inputs import Ticked
from pipelines.shard import BROKEN_TIMER_WAIT_MS, CORE_VERSION, Shard
from schemas.errors import DeliveryError, StateDamaged
from schemas.policy import Policy
from schemas.records import Kind
from tests.factories import DAY_S, NOW_MS, NOW_S, ack, address, device, envelope, lane_signal
from tests.world import World, fold

ALICE, BOB, CAROL = device(1), device(2), device(3)
SHORT = Policy(expiry_remaining_min_s=0, expiry_tolerance_s=0)


def breaks(name, monkeypatch, *, when=lambda *_: True):
    """Let a rule of the shard fail, as a bug of ours would."""
    rule = getattr(shard_module, name)

    def broken(*args, **kwargs):
        if when(*args):
            result = rule(*args, **kwargs)  # it fails late, after it changed the mailbox
            raise ZeroDivisionError(result)
        return rule(*args, **kwargs)

    monkeypatch.setattr(shard_module, name, broken)


# -- time -----------------------------------------------------------------------------------


def test_time_never_goes_back():
    world = World()
    world.arrive(envelope(n=1), at_ms=NOW_MS + 500)
    answer = world.arrive(envelope(n=2), at_ms=NOW_MS)
    assert answer.history[0]["at_ms"] == NOW_MS + 500
    assert answer.report.time_ms == NOW_MS + 500


def test_timers_see_only_the_time_of_the_log():
    world = World(SHORT)
    world.arrive(envelope(n=1, expires_at_s=NOW_S + 10))
    assert world.tick(NOW_MS - 5_000).history == []
    assert world.value(b"", at_ms=NOW_MS + 10_000).kinds == ["expired"]


def test_a_tick_on_an_empty_shard_leaves_no_mailbox():
    world = World()
    answer = world.tick(NOW_MS)
    assert (answer.rows, answer.report.wake_at_ms) == ({}, None)
    assert world.header.boxes == {}


def test_mailboxes_fire_in_order_of_their_due_time():
    world = World(SHORT)
    owners = sorted((address(BOB), address(CAROL)))
    for owner, ttl_s in zip(owners, (20, 10), strict=True):
        world.arrive(envelope(n=1, recipient=owner, expires_at_s=NOW_S + ttl_s))
    rows = world.tick(NOW_MS + 30_000).history
    assert [row["recipient"] for row in rows] == [owners[1].hex(), owners[0].hex()]
    assert [row["index"] for row in rows] == [0, 1]


def test_mailboxes_due_at_the_same_time_fire_in_order_of_address():
    owners = sorted(address(device(n)) for n in range(2, 8))
    for order in (owners, owners[::-1]):
        world = World(SHORT)
        for owner in order:
            world.arrive(envelope(n=1, recipient=owner, expires_at_s=NOW_S + 10))
        rows = world.tick(NOW_MS + 10_000).history
        assert [row["recipient"] for row in rows] == [owner.hex() for owner in owners]


def test_a_shard_says_when_it_wants_its_next_tick():
    shard = Shard(Header())
    assert shard.wake_at_ms() is None
    world = World()
    world.arrive(envelope(n=2))
    world.arrive(envelope(n=1, recipient=CAROL))
    assert Shard(world.header).wake_at_ms() == NOW_MS + 300_000


# -- state ----------------------------------------------------------------------------------


def test_a_refusal_alone_leaves_no_mailbox():
    world = World()
    world.arrive(envelope(expires_at_s=NOW_S))
    world.ack(ack(envelope(n=1), signer=CAROL))
    assert world.header.boxes == {}


def test_mailboxes_are_saved_in_order_of_address_whoever_came_first():
    owners = [address(device(n)) for n in range(2, 10)]
    world = World()
    for owner in owners:
        world.arrive(envelope(n=1, recipient=owner))
    assert list(world.header.boxes) == sorted(owners)
    assert world.whole()[0] == world.blob


def test_mailboxes_stay_in_order_when_one_goes_as_another_comes():
    world = World()
    owners = sorted(address(device(n)) for n in range(2, 6))
    keys = {address(device(n)): device(n) for n in range(2, 6)}
    world.arrive(envelope(n=1, recipient=owners[1]))
    world.signal(lane_signal(peer=keys[owners[3]], counter=1))  # known by a lane only
    later_ms = NOW_MS + 31 * DAY_S * 1000
    first = envelope(n=1, recipient=owners[0], expires_at_s=NOW_S + 40 * DAY_S)
    world.arrive(first, at_ms=later_ms)  # the lane is forgotten in the same call
    assert list(world.header.boxes) == [owners[0], owners[1]]
    assert world.whole()[0] == world.blob


def test_a_saved_shard_goes_on_as_if_it_had_not_been_saved():
    shard, other = Shard(Header()), Shard(Header())
    world = World()
    for n in (2, 1, 3):
        world.arrive(envelope(n=n))
    for one, saves in ((shard, True), (other, False)):
        for _, at_ms, value in world.log:
            one.step(at_ms, admit(value, 0, 1), value)
            if saves:
                one.save()
    assert shard.save() == other.save()


def test_a_mailbox_that_cannot_be_read_stops_the_call():
    world = World()
    world.arrive(envelope(n=1))
    header = world.header
    due_at_ms, _ = header.boxes[address(BOB)]
    header.boxes[address(BOB)] = (due_at_ms, b"\xc1")
    with pytest.raises(StateDamaged, match="farpost rebuild"):
        Shard(header).step(NOW_MS + 8 * DAY_S * 1000, Ticked(), b"")


# -- broken rules ---------------------------------------------------------------------------


def test_a_broken_rule_costs_exactly_its_record(monkeypatch):
    world = World()
    world.arrive(envelope(n=1))
    world.arrive(envelope(n=3))
    breaks("apply", monkeypatch, when=lambda item, _: item.envelope.counter == 2)
    before = world.header
    answer = world.arrive(envelope(n=2))
    assert (answer.history, answer.inbox, answer.outcome) == ([], [], "quarantined")
    (row,) = answer.quarantine
    assert (row["code"], row["kind"]) == ("internal", Kind.ENVELOPE)
    assert row["value"] == world.log[-1][2]
    assert "ZeroDivisionError" in row["reason"]
    assert "send the message again" in row["reason"]
    assert (world.header.boxes, world.header.recent) == (before.boxes, before.recent)
    assert world.arrive(envelope(n=4)).outcome == "held"
    monkeypatch.undo()
    assert world.arrive(envelope(n=2)).kinds == ["stored", "released", "released"]


def test_a_broken_rule_leaves_the_rest_of_its_batch_alone(monkeypatch):
    world, without = World(), World()
    for n in (1, 2, 3, 4):
        world.arrive(envelope(n=n))
        without.tick() if n == 2 else without.arrive(envelope(n=n))
    breaks("apply", monkeypatch, when=lambda item, _: item.envelope.counter == 2)
    blob, whole = fold(world.log)
    assert blob == without.blob
    assert [row["offset"] for row in whole.history] == [0, 2, 3]
    assert [row["offset"] for row in whole.quarantine] == [1]


def test_a_broken_rule_settles_nothing(monkeypatch):
    world = World()
    world.arrive(envelope(n=1))
    breaks("apply", monkeypatch)
    world.ack(ack(envelope(n=1)))
    monkeypatch.undo()
    assert len(world.pending()) == 1
    assert world.header.recent == b""
    assert world.ack(ack(envelope(n=1))).history[0]["known"] is True


def test_a_record_that_breaks_for_an_unknown_mailbox_leaves_none(monkeypatch):
    world = World()
    breaks("apply", monkeypatch)
    world.arrive(envelope(n=1))
    assert world.header.boxes == {}


def test_a_broken_timer_is_postponed_and_costs_no_record(monkeypatch):
    world = World(SHORT)
    world.arrive(envelope(n=1, expires_at_s=NOW_S + 10))
    world.arrive(envelope(n=1, recipient=CAROL, expires_at_s=NOW_S + 10))
    breaks("fire", monkeypatch, when=lambda turn: turn.owner == address(BOB))
    answer = world.arrive(envelope(n=2), at_ms=NOW_MS + 20_000)
    (row,) = answer.quarantine
    assert (row["code"], row["kind"], row["value"]) == ("internal", None, b"")
    assert "tried again" in row["reason"]
    assert row["at_ms"] == NOW_MS + 20_000
    assert answer.kinds == ["expired", "stored"]
    assert answer.outcome == "stored"
    assert len(world.pending()) == 2
    assert answer.report.wake_at_ms == NOW_MS + 20_000 + BROKEN_TIMER_WAIT_MS
    assert world.tick(NOW_MS + 30_000).rows == {}
    monkeypatch.undo()
    mended = world.tick(NOW_MS + 20_000 + BROKEN_TIMER_WAIT_MS)
    assert [row["message_id"] for row in mended.history] == [envelope(n=1)[4:20].hex()]


def test_a_tick_that_meets_a_broken_timer_counts_as_quarantined(monkeypatch):
    world = World(SHORT)
    world.arrive(envelope(n=1, expires_at_s=NOW_S + 10))
    breaks("fire", monkeypatch)
    assert world.tick(NOW_MS + 10_000).outcome == "quarantined"


# -- policy, snapshot, quarantine -----------------------------------------------------------


def test_a_policy_holds_from_its_record_on():
    world = World()
    assert world.arrive(envelope(n=3)).outcome == "held"
    answer = world.policy(Policy(held_max=1))
    assert (answer.rows, answer.report.policy_number) == ({}, 1)
    assert world.arrive(envelope(n=4)).reason == "too_many_held"


def test_only_a_growing_number_changes_the_policy():
    world = World()
    world.policy(Policy(held_max=1), number=5)
    world.policy(Policy(held_max=9), number=5)
    world.policy(Policy(held_max=9), number=4)
    assert world.header.policy_number == 5
    world.arrive(envelope(n=3))
    assert world.arrive(envelope(n=4)).reason == "too_many_held"
    world.policy(Policy(held_max=9), number=7)
    assert world.header.policy_number == 7
    assert world.arrive(envelope(n=4)).outcome == "held"


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"held_max":0}', b'{"other":1}', b"\xff"])
def test_a_policy_that_cannot_be_read_is_quarantined_and_changes_nothing(body):
    world = World()
    world.policy(Policy(held_max=1))
    answer = world.policy(body)
    assert (answer.quarantine[0]["code"], answer.outcome) == ("bad_settings", "quarantined")
    assert world.header.policy_number == 1
    world.arrive(envelope(n=3))
    assert world.arrive(envelope(n=4)).reason == "too_many_held"


def test_fewer_recent_ids_are_forgotten_at_once_and_do_not_come_back():
    world = World()
    for n in (1, 2):
        world.arrive(envelope(n=n, counter=0))
        world.ack(ack(envelope(n=n, counter=0)))
    world.policy(Policy(recent_ids_max=1))
    world.policy(Policy(recent_ids_max=9))
    assert world.arrive(envelope(n=1, counter=0)).outcome == "stored"
    assert world.arrive(envelope(n=2, counter=0)).outcome == "duplicate"


def test_a_shorter_gap_timeout_wakes_no_mailbox_that_is_not_kept():
    world = World()
    world.arrive(envelope(n=1))
    world.arrive(envelope(recipient=CAROL, expires_at_s=NOW_S))
    world.policy(Policy(gap_timeout_ms=1_000), at_ms=NOW_MS + 1)
    blob, whole = world.whole()
    assert (blob, whole.report.wake_at_ms) == (world.blob, NOW_MS + 1)
    assert list(world.header.boxes) == [address(BOB)]


def test_a_snapshot_is_the_state_as_it_is_after_that_record():
    world = World(SHORT)
    world.arrive(envelope(n=2))
    answer = world.snapshot(round_number=9, at_ms=NOW_MS + 4)
    (row,) = answer.snapshots
    assert row == {
        "partition": 0,
        "offset": 2,
        "index": 0,
        "shard": 0,
        "round": 9,
        "at_ms": NOW_MS + 4,
        "core_version": CORE_VERSION,
        "policy_number": 1,
        "last_offset": 2,
        "blob": world.blob,
    }
    assert world.whole()[1].snapshots == [row]


def test_a_snapshot_in_the_middle_of_a_batch_changes_nothing():
    world, without = World(), World()
    for n in (2, 1, 3):
        world.arrive(envelope(n=n))
        world.snapshot()
        without.arrive(envelope(n=n))
        without.tick()
    assert world.whole()[0] == without.whole()[0]
    assert world.whole()[1].inbox == without.whole()[1].inbox


def test_what_was_not_admitted_is_quarantined_as_it_came():
    world = World()
    answer = world.value(b"\x01\x00\x00nonsense", at_ms=NOW_MS + 7)
    (row,) = answer.quarantine
    assert (row["code"], row["kind"], row["at_ms"]) == ("bad_envelope", 1, NOW_MS + 7)
    assert (row["value"], row["value_size"]) == (b"\x01\x00\x00nonsense", 11)
    assert answer.outcome == "quarantined"
    assert world.header.boxes == {}


def test_an_empty_record_has_no_kind():
    (row,) = World().value(b"").quarantine
    assert (row["code"], row["kind"], row["value_size"]) == ("bad_record", None, 0)


def test_an_error_given_as_input_becomes_its_row():
    shard = Shard(Header())
    (effect,) = shard.step(NOW_MS, DeliveryError("no"), b"\x07")
    assert (effect.code, effect.reason, effect.record_kind) == ("internal", "no", 7)
    assert decode_box(shard_module.EMPTY_BOX).is_blank()
