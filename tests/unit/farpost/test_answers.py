"""Trace and check over real Delta tables, without a JVM: what is right is green, the rest red."""

import pytest

from farpost.answers import open_answers
from farpost.lookup import MessageKey, find_message, rows_of
from farpost.story import tell
from schemas.errors import BadQuery, NotFound, TableDamaged
from schemas.records import Kind
from schemas.tables import TABLES
from tests.factories import address, device, message_id
from tests.unit.farpost.made_up import PARTITIONS, Hub

ALICE, BOB, CAROL = device(1), device(2), device(3)


@pytest.fixture
def hub(tmp_path):
    return Hub(tmp_path)


def story(hub, n, **fields):
    answers = open_answers(hub.data)
    return tell(rows_of(answers, find_message(answers, message_id(n).hex(), **fields)))


def kinds(told):
    return [step.kind for step in told.steps]


# -- opening ---------------------------------------------------------------------------------


def test_an_empty_hub_says_so(tmp_path):
    with pytest.raises(NotFound, match="has not committed anything yet"):
        open_answers(tmp_path)


def test_a_missing_directory_says_so(tmp_path):
    with pytest.raises(NotFound, match="farpost up"):
        open_answers(tmp_path / "nothing")


def test_rows_above_the_manifest_are_not_seen(hub):
    hub.envelope(n=1)
    hub.commit()
    row = [None] * len(TABLES["history"].packed)
    hub.append_uncommitted("history", row)
    assert open_answers(hub.data).query("select count(*) as n from history")["n"][0].as_py() == 1


@pytest.mark.parametrize("pattern", ["*.parquet", "_delta_log/*.json"])
def test_a_damaged_table_says_what_to_do(hub, pattern):
    hub.envelope(n=1)
    hub.commit()
    for path in (hub.data / "tables" / "history").glob(pattern):
        path.write_bytes(b"")
    with pytest.raises(TableDamaged, match="farpost rebuild"):
        open_answers(hub.data).query("select * from history")


# -- trace -----------------------------------------------------------------------------------


def test_a_message_is_told_from_arrival_to_receipt(hub):
    hub.be_busy()
    hub.commit()
    told = story(hub, 1)
    assert kinds(told) == ["stored", "duplicate", "refused", "delivered"]
    assert told.status == "delivered"


def test_a_held_message_is_told_with_its_gap(hub):
    hub.be_busy()
    hub.commit()
    told = story(hub, 5)
    assert kinds(told) == ["held", "gap", "released"]
    assert "Released after a gap" in told.steps[2].text
    assert told.steps[1].log == told.steps[2].log


def test_a_late_message_is_told_with_the_gap_it_was_in(hub):
    hub.be_busy()
    hub.commit()
    assert kinds(story(hub, 3)) == ["gap", "stored"]


def test_a_cancelled_message_is_told_once_and_not_as_a_dead_letter(hub):
    hub.be_busy()
    hub.commit()
    told = story(hub, 7)
    assert kinds(told) == ["stored", "cancelled"]
    assert told.status == "cancelled"


def test_a_scheduled_message_tells_its_time(hub):
    hub.be_busy()
    hub.commit()
    told = story(hub, 21)
    assert "before 2027-01-16 08:00:00 UTC" in told.steps[0].text
    assert told.status == "scheduled"


def test_a_receipt_after_the_expiry_is_attached(hub):
    hub.be_busy()
    hub.commit()
    told = story(hub, 30)
    assert kinds(told) == ["stored", "expired", "delivered"]
    assert told.status == "delivered"


def test_an_envelope_that_was_set_aside_is_found_by_its_id(hub):
    data = bytearray(hub.envelope(n=1))
    hub.log.clear()
    hub._next = [0] * PARTITIONS
    data[-1] ^= 1
    hub.append(Kind.ENVELOPE, bytes(data))
    hub.commit()
    told = story(hub, 1)
    assert kinds(told) == ["quarantined"]
    assert told.status == "failed"


def test_the_beginning_of_an_id_is_enough(hub):
    hub.be_busy()
    hub.commit()
    answers = open_answers(hub.data)
    full = message_id(5).hex()
    assert find_message(answers, full[:8].upper()) == MessageKey(
        recipient=address(BOB).hex(), sender=address(ALICE).hex(), message_id=full
    )


def test_an_id_used_twice_lists_the_candidates(hub):
    hub.envelope(n=1)
    hub.envelope(n=1, recipient=CAROL)
    hub.commit()
    with pytest.raises(BadQuery) as caught:
        story(hub, 1)
    for key in (BOB, CAROL):
        assert f"{address(ALICE).hex()[:16]}… → {address(key).hex()[:16]}…" in str(caught.value)
    assert story(hub, 1, recipient=address(CAROL).hex()[:6]).status == "stored"
    with pytest.raises(NotFound):
        story(hub, 1, sender="00")


def test_many_candidates_are_not_all_listed(hub):
    for n in range(40):
        hub.envelope(n=1, recipient=device(100 + n))
    hub.commit()
    with pytest.raises(BadQuery) as caught:
        story(hub, 1)
    assert len(str(caught.value).splitlines()) == 12


def test_a_foreign_receipt_does_not_make_an_id_ambiguous(hub):
    data = hub.envelope(n=1)
    hub.ack(data, signer=CAROL)
    hub.commit()
    assert story(hub, 1).status == "stored"


def test_an_id_known_from_a_foreign_receipt_alone_is_unknown(hub):
    data = hub.envelope(n=1)
    hub.log.clear()
    hub._next = [0] * PARTITIONS
    hub.ack(data, signer=CAROL)
    hub.commit()
    assert story(hub, 1).status == "unknown"


def test_an_unknown_id_says_what_to_do(hub):
    hub.envelope(n=1)
    hub.commit()
    with pytest.raises(NotFound, match="ask again in a moment"):
        story(hub, 99)


@pytest.mark.parametrize("text", ["", "xyz", "0" * 33, "' or 1=1 --"])
def test_what_is_no_id_is_refused(hub, text):
    hub.envelope(n=1)
    hub.commit()
    with pytest.raises(BadQuery, match="hex digits"):
        find_message(open_answers(hub.data), text)
