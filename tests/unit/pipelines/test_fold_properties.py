"""The heart of the hub: what the tables hold depends on the log alone, and nothing is lost."""

from collections import Counter, defaultdict
from functools import lru_cache
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines import fold as fold_module
from pipelines.blob import decode_box
from pipelines.fold import load
from pipelines.packs import OUTCOMES, decode_report, encode_report
from pipelines.turn import NO_TIMER
from schemas.envelope import Envelope
from schemas.policy import Policy
from schemas.records import Kind, encode_record, encode_tick
from tests.factories import DAY_S
from tests.logs import HELD_MAX, RANGES_MAX, build, moves
from tests.world import fold, pending

ACCEPTED = ("stored", "held", "scheduled")
ENDED = ("delivered", "read", "taken", "cancelled", "expired")


@pytest.fixture(scope="module", autouse=True)
def _signatures_checked_once():
    """The gate is a pure function, and the same record passes it many times here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_module, "admit", lru_cache(maxsize=50_000)(fold_module.admit))
        yield


quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def folded(log, cuts, blob=None):
    """Fold with a batch cut before each of these offsets; state, rows, orders, outcomes, wake."""
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(log)}), len(log)]
    rows, orders, outcomes, wake_at_ms = defaultdict(list), [], {}, None
    for start, end in pairwise(edges):
        blob, answer = fold(log[start:end], blob)
        for code, more in answer.rows.items():
            rows[code] += more
        report = decode_report(encode_report(answer.report))
        orders += report.orders
        outcomes |= dict(zip(report.offsets, report.outcomes, strict=True))
        wake_at_ms = report.wake_at_ms
    return blob, dict(rows), orders, outcomes, wake_at_ms


def after(rows, offset):
    kept = {code: [row for row in some if row[1] > offset] for code, some in rows.items()}
    return {code: some for code, some in kept.items() if some}


@quick
@given(moves, st.lists(st.integers(1, 60), max_size=6))
def test_the_same_log_gives_the_same_rows_wherever_it_is_cut(drawn, cuts):
    log = build(drawn)
    whole = folded(log, [])
    assert folded(log, cuts) == whole
    assert folded(log, range(len(log))) == whole


@quick
@given(moves, st.data())
def test_every_snapshot_is_a_place_to_begin_from(drawn, data):
    log = build([*drawn[:20], (0, ("snapshot",)), *drawn[20:]])
    blob, rows, orders, outcomes, wake_at_ms = folded(log, [])
    snapshots = fold(log)[1].snapshots
    assert snapshots
    for snapshot in snapshots:
        offset = snapshot["offset"]
        assert load(snapshot["blob"]).last_offset == offset == snapshot["last_offset"]
        assert snapshot["blob"] == folded(log[: offset + 1], [])[0]
        first = data.draw(st.integers(0, offset))  # a rebuild reads from the oldest seed of all
        cuts = data.draw(st.lists(st.integers(1, 60), max_size=2))
        again = folded(log[first:], cuts, snapshot["blob"])
        assert again[0] == blob
        assert again[1] == after(rows, offset)
        assert again[2] == [order for order in orders if order[0] > offset]
        assert again[3] == {at: code for at, code in outcomes.items() if at > offset}
        if offset + 1 < len(log):
            assert again[4] == wake_at_ms


@quick
@given(moves)
def test_the_rows_keep_every_promise(drawn):
    log = build(drawn)
    blob, answer = fold(log)
    check_places(log, answer)
    check_outcomes(log, answer)
    check_positions(answer)
    check_order(answer)
    check_replays(answer)
    check_ends(answer, blob)


@quick
@given(moves)
def test_an_id_settled_lately_is_not_accepted_again(drawn):
    blob, settled, known_max = None, [], 1_000
    for record in build(drawn):
        blob, answer = fold([record], blob)
        for row in answer.history:
            key = (row["recipient"], row["sender"], row["message_id"])
            if row["kind"] in ENDED and row["known"] is not False:
                settled.append(key)
            if row["kind"] in ACCEPTED:
                assert key not in settled[max(0, len(settled) - known_max) :]
        policy = load(blob).policy
        known_max = min(known_max, Policy.from_json(policy or b"{}").recent_ids_max)


@quick
@given(moves)
def test_the_state_is_sound_after_every_record(drawn):
    blob = None
    for record in build(drawn):
        blob, answer = fold([record], blob)
        check_state(blob)
        header = load(blob)
        due = min((at_ms for at_ms, _ in header.boxes.values()), default=NO_TIMER)
        assert answer.report.wake_at_ms == (due if due < NO_TIMER else None)


@quick
@given(moves)
def test_in_the_end_everything_is_settled_and_forgotten(drawn):
    log = build(drawn)
    last_ms = max(at_ms for _, at_ms, _ in log) + 100 * DAY_S * 1000
    tick = (len(log), last_ms, encode_record(Kind.TICK, 0, encode_tick(last_ms)))
    blob, answer = fold([*log, tick])
    assert not pending(blob)
    assert answer.report.wake_at_ms is None
    check_ends(answer, blob)
    for _, raw in load(blob).boxes.values():
        box = decode_box(bytes(raw))
        assert box.lanes == {}
        assert box.position > 0


# -- promises -------------------------------------------------------------------------------


def check_places(log, answer):
    """Every row and order has a place of its own, numbered without holes in each record."""
    places = [(row[1], row[2]) for rows in answer.rows.values() for row in rows]
    places += [order[:2] for order in answer.report.orders]
    assert len(places) == len(set(places))
    for offset, count in Counter(offset for offset, _ in places).items():
        assert {(offset, index) for index in range(count)} <= set(places)
        assert offset < len(log)
    last_ms = defaultdict(int)
    for row in answer.history:
        assert row["at_ms"] >= last_ms[row["recipient"]]
        last_ms[row["recipient"]] = row["at_ms"]


def check_outcomes(log, answer):
    """Every envelope has exactly one first outcome, and the report says the same one."""
    found = defaultdict(list)
    for row in answer.history:
        if row["kind"] in OUTCOMES:
            found[row["offset"]].append(row["kind"])
    for row in answer.quarantine:
        found[row["offset"]].append("quarantined")
    assert answer.report.offsets == [offset for offset, _, _ in log]
    for (offset, _, value), code in zip(log, answer.report.outcomes, strict=True):
        name = OUTCOMES[code]
        assert found.pop(offset, ["other"]) == [name]
        assert name != "other" or value[0] != Kind.ENVELOPE
    assert not found
    stored = {row["offset"]: row["kind"] for row in answer.inbox if row["envelope"]}
    accepted = {r["offset"]: r["kind"] for r in answer.history if r["kind"] in ACCEPTED}
    assert stored == accepted


def check_positions(answer):
    """Positions of a mailbox are 1, 2, 3 …, each given once, and history has the same ones."""
    given_to = defaultdict(list)
    for row in sorted(answer.inbox, key=lambda row: (row["offset"], row["index"])):
        if row["position"] is not None:
            given_to[row["recipient"]].append(row["position"])
        assert (row["position"] is None) == (row["kind"] in ("held", "scheduled"))
    for positions in given_to.values():
        assert positions == list(range(1, len(positions) + 1))
    told = Counter((r["recipient"], r["position"]) for r in answer.history if r["position"])
    assert told == Counter((o, p) for o, positions in given_to.items() for p in positions)


def check_order(answer):
    """In a lane counters grow with positions, but for what was skipped, or forgotten."""
    may_come = defaultdict(set)  # lane -> counters that history says may come late
    seen = defaultdict(list)  # lane -> (counter, signed expiry) in order of position
    signed = {}  # message -> its signed expiry
    events = [(row["offset"], row["index"], "history", row) for row in answer.history]
    events += [(row["offset"], row["index"], "inbox", row) for row in answer.inbox]
    for _, _, table, row in sorted(events, key=lambda event: event[:2]):
        lane = (row["recipient"], row["sender"], row["session_id"], row["priority"])
        if table == "history":
            if row["kind"] == "gap":
                may_come[lane] |= set(range(row["counter"], row["counter_to"] + 1))
            if row["kind"] == "elsewhere" and row["reason"] is None:
                may_come[lane].add(row["counter"])
            continue
        message = (row["recipient"], row["sender"], row["message_id"])
        if row["envelope"]:
            signed[message] = Envelope.decode(row["envelope"]).expires_at_s
        if row["position"] is not None and row["counter"]:
            counter, at_s = row["counter"], row["received_at_ms"] // 1000
            if all(expires_at_s <= at_s for _, expires_at_s in seen[lane]):
                seen[lane].clear()  # the lane may have been forgotten since
            in_order = all(counter > before for before, _ in seen[lane])
            assert in_order or counter in may_come[lane]
            may_come[lane].discard(counter)
            seen[lane].append((counter, signed[message]))


def check_replays(answer):
    """While an envelope could come again, its counter is not accepted again."""
    lives_until_s = {}  # (lane, counter) -> the latest signed expiry
    for row in answer.inbox:
        if row["envelope"] and row["counter"]:
            lane = (row["recipient"], row["sender"], row["session_id"], row["priority"])
            key = (lane, row["counter"])
            assert lives_until_s.get(key, 0) <= row["received_at_ms"] // 1000
            lives_until_s[key] = Envelope.decode(row["envelope"]).expires_at_s


def check_ends(answer, blob):
    """An accepted message ends once, or is pending; nothing else ends."""
    open_now = Counter()
    for row in answer.history:
        key = (row["recipient"], row["sender"], row["message_id"])
        if row["kind"] in ACCEPTED:
            open_now[key] += 1
        elif row["kind"] in ENDED and row["known"] is not False:
            open_now[key] -= 1
        assert open_now[key] in (0, 1)
    left = {key for key, count in open_now.items() if count}
    assert left == {tuple(part.hex() for part in key) for key in pending(blob)}
    cancelled = sum(row["kind"] == "cancelled" and row["known"] for row in answer.history)
    assert len(answer.dead_letters) == cancelled


def check_state(blob):
    header = load(blob)
    policy = Policy.from_json(header.policy)
    assert list(header.boxes) == sorted(header.boxes)
    assert len(header.recent) <= 16 * policy.recent_ids_max
    for due_at_ms, raw in header.boxes.values():
        box = decode_box(bytes(raw))
        assert not box.is_blank()
        assert due_at_ms == box.due_at_ms
        assert box.due_at_ms <= max(next_due_ms(box, policy), header.time_ms)
        for lane in box.lanes.values():
            check_lane(lane, header.time_ms, box)


def next_due_ms(box, policy):
    """The plain answer: the earliest thing that time will do to this mailbox."""
    due = [NO_TIMER]
    for lane in box.lanes.values():
        due += [one.expires_at_s * 1000 for one in lane.pending.values()]
        due += [one.not_before_s * 1000 for one in lane.pending.values() if one.not_before_s]
        due += [at_ms + policy.gap_timeout_ms for _, at_ms in lane.held.values()]
        due += [] if lane.pending else [lane.keep_until_s * 1000]
    return min(due)


def check_lane(lane, time_ms, box):
    ahead = [*lane.held, *lane.ahead]
    assert len(ahead) == len(set(ahead))
    assert all(counter > lane.expected for counter in ahead)
    assert len(lane.held) <= HELD_MAX
    assert len(lane.skipped) <= RANGES_MAX
    ends = [end for pair in lane.skipped for end in pair]
    assert ends == sorted(ends)
    assert all(end < lane.expected for end in ends)
    waiting = {message_id for message_id, _ in lane.held.values()}
    for counter, (message_id, received_at_ms) in lane.held.items():
        assert lane.pending[message_id].counter == counter
        assert received_at_ms <= time_ms
    for message_id, one in lane.pending.items():
        assert one.expires_at_s * 1000 > time_ms
        assert one.not_before_s == 0 or one.not_before_s * 1000 > time_ms
        assert (one.position == 0) == (message_id in waiting or one.not_before_s > 0)
        assert one.position <= box.position
        assert one.expires_at_s <= lane.keep_until_s
