import pytest

from pipelines import fold as fold_module
from pipelines.blob import Header
from pipelines.fold import advance, fold_log, load, shard_for
from pipelines.packs import OUTCOMES
from schemas.records import Kind, encode_record, encode_tick, route
from schemas.signals import SignalKind
from schemas.tables import TABLES
from tests.factories import NOW_MS, NOW_S, ack, address, device, envelope, message_id, signal
from tests.world import World, fold

BOB, CAROL = device(2), device(3)


@pytest.mark.parametrize(
    ("value", "shard"),
    [
        (b"", 1),
        (b"\x01\x00", 1),
        (b"\x01\x00\x03", 3),
        (b"\x01\x00\x03rest", 3),
        (b"\x01\x00\x02", 1),  # of the other partition
        (b"\x01\x00\x09", 1),  # there are only eight
        (b"\x01\xff\xff", 1),
    ],
)
def test_a_record_meets_the_shard_it_names_or_that_of_its_partition(value, shard):
    assert shard_for(value, 1, 8, 2) == shard


def test_a_misplaced_record_is_quarantined_by_the_shard_of_its_partition():
    value = encode_record(Kind.TICK, 2, encode_tick(NOW_MS))
    tables = fold_log([(1, 0, NOW_MS, value)], shards=8, partitions=2)
    (row,) = tables["quarantine"]
    assert row[:3] == [1, 0, 0]
    assert "names shard 2" in row[5]


def test_a_new_shard_begins_with_nothing():
    assert load(None) == Header()


def test_every_record_is_reported_with_its_outcome():
    world = World()
    for data in (envelope(n=1), envelope(n=3), envelope(n=1), envelope(n=1, payload=b"x")):
        world.arrive(data)
    world.arrive(envelope(n=9, counter=0, not_before_s=NOW_S + 9))
    world.value(b"?")
    world.ack(ack(envelope(n=1)))
    world.tick()
    report = world.whole()[1].report
    assert report.offsets == list(range(8))
    assert [OUTCOMES[code] for code in report.outcomes] == [
        *("stored", "held", "duplicate", "refused", "scheduled"),
        *("quarantined", "other", "other"),
    ]


def test_the_outcome_is_that_of_the_record_and_not_of_what_it_released():
    world = World()
    world.arrive(envelope(n=2))
    answer = world.arrive(envelope(n=1))
    assert (answer.outcome, answer.kinds) == ("stored", ["stored", "released"])


def test_what_the_seed_has_is_skipped():
    world = World()
    for n in (1, 2, 3):
        world.arrive(envelope(n=n))
    blob, _ = fold(world.log[:2])
    final, rest = fold(world.log, blob)
    assert rest.report.offsets == [2]
    assert final == world.blob
    again, nothing = fold(world.log, final)
    assert (again, nothing.report.offsets, nothing.rows) == (final, [], {})


def test_a_call_reports_even_if_it_made_no_row():
    answer = World().tick()
    assert (answer.report.offsets, answer.report.outcomes, answer.rows) == ([0], [0], {})
    assert (answer.report.shard, answer.report.partition) == (0, 0)


def test_recipients_with_something_new_are_named_once():
    world = World()
    world.arrive(envelope(n=1, recipient=CAROL))
    for n in (2, 1, 3, 9):
        world.arrive(envelope(n=n))
    world.ack(ack(envelope(n=1)))
    report = world.whole()[1].report
    assert report.touched == [address(CAROL).hex(), address(BOB).hex()]


def test_rows_of_one_record_are_numbered_in_the_order_of_what_happened():
    world = World()
    world.arrive(envelope(n=2))
    world.arrive(envelope(n=3))
    answer = world.arrive(envelope(n=1))
    places = sorted((row["index"], row["kind"]) for row in answer.inbox + answer.history)
    assert [index for index, _ in places] == list(range(6))
    assert [kind for _, kind in places] == ["stored"] * 2 + ["released"] * 4


def test_a_broken_gate_costs_exactly_its_record(monkeypatch):
    world = World()
    gate = fold_module.admit

    def broken(value, *args):
        if value[0] == Kind.ACK:
            raise ZeroDivisionError
        return gate(value, *args)

    monkeypatch.setattr(fold_module, "admit", broken)
    world.arrive(envelope(n=1))
    answer = world.ack(ack(envelope(n=1)))
    assert (answer.quarantine[0]["code"], answer.outcome) == ("internal", "quarantined")
    assert world.arrive(envelope(n=2)).outcome == "stored"


def test_a_whole_log_is_folded_shard_by_shard():
    shards, partitions = 8, 2
    log, offsets = [], [0, 0]
    for n in range(1, 13):
        data = envelope(n=n, counter=1 + (n > 6), recipient=device(2 + n % 6))
        partition, value = route(Kind.ENVELOPE, data, shards, partitions)
        log.append((partition, offsets[partition], NOW_MS + n, value))
        offsets[partition] += 1
    log.append((0, offsets[0], NOW_MS, b"?"))
    tables = fold_log(reversed(log), shards=shards, partitions=partitions)
    assert set(tables) == set(TABLES)
    assert {(row[0], row[1]) for row in tables["inbox"]} == {record[:2] for record in log[:-1]}
    assert len(tables["history"]) == 12
    assert [row[:3] for row in tables["quarantine"]] == [[0, offsets[0], 0]]
    assert {row[5] for row in tables["inbox"]} == {message_id(n).hex() for n in range(1, 13)}


def test_the_partition_of_a_row_is_that_of_its_shard():
    _, call = advance(Header(), [(5, NOW_MS, b"?")], shard_id=7, shards=8, partitions=4)
    assert call.report.partition == 3
    assert call.rows[TABLES["quarantine"].code][0][:3] == [3, 5, 0]


def test_orders_say_where_they_came_from():
    world = World()
    world.arrive(envelope(n=2))
    world.signal(signal(envelope(n=9), kind=SignalKind.NAK, arg=1))
    answer = world.tick(NOW_MS + 300_000)
    ((offset, index, _),) = answer.report.orders
    (order,) = answer.orders
    assert (offset, index) == (order["offset"], order["index"]) == (2, 1)
