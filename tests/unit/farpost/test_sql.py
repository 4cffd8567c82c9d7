"""`farpost sql`: anything may be asked, nothing changed, and no ciphertext seen."""

import itertools

import pytest

from farpost.answers import open_answers
from farpost.story import Row, status
from farpost.views import HIDDEN, MESSAGES_COLUMNS, visible_columns
from schemas.errors import BadQuery
from schemas.tables import HISTORY_KINDS, TABLES
from tests.factories import message_id
from tests.unit.farpost.made_up import Hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    made = Hub(tmp_path_factory.mktemp("hub"))
    made.be_busy()
    made.commit()
    return made


@pytest.fixture
def answers(hub):
    return open_answers(hub.data)


def ask(answers, sql, rows_max=1_000):
    return answers.ask(sql, rows_max)[0].to_pylist()


def test_every_table_answers_with_its_visible_columns(answers):
    for name in (*TABLES, "messages"):
        found, _ = answers.ask(f"select * from {name}", 10)
        assert tuple(found.column_names) == visible_columns(name)


def test_names_that_are_words_of_sql_need_no_quotes(answers):
    rows = ask(answers, "select partition, offset, index, row, manifest, position from inbox")
    assert len(rows) == 10


def test_ciphertext_cannot_be_reached(answers):
    for table, column in HIDDEN.items():
        for sql in (
            f"select {column} from {table}",
            f"select {column} from raw_{table}",
            f'select * from "raw_{table}"',
            f"select {table}.{column} from {table}",
        ):
            with pytest.raises(BadQuery):
                answers.ask(sql, 10)
    assert set(HIDDEN.values()) == {
        column.name
        for table in TABLES.values()
        for column in table.columns
        if column.type == "binary"
    }


def test_a_view_lists_the_state_of_every_message(answers):
    rows = {row["message_id"]: row for row in ask(answers, "select * from messages")}
    found = {n: rows[message_id(n).hex()]["status"] for n in (1, 2, 5, 7, 8, 20, 21, 30)}
    assert found == {
        1: "delivered",
        2: "stored",
        5: "stored",
        7: "cancelled",
        8: "taken",
        20: "expired",
        21: "scheduled",
        30: "delivered",
    }
    first = rows[message_id(1).hex()]
    assert (first["position"], first["accepted"], first["duplicates"], first["refusals"]) == (
        1,
        1,
        1,
        1,
    )
    assert set(first) == set(MESSAGES_COLUMNS)


def test_joins_windows_and_common_tables_work(answers):
    rows = ask(
        answers,
        """
        -- how long did each delivery take?
        with ends as (select message_id, at_ms from history where kind = 'delivered')
        select h.message_id, e.at_ms - h.at_ms as took_ms,
            row_number() over (order by e.at_ms) as place
        from history h join ends e on h.message_id = e.message_id
        where h.kind = 'stored' order by place;
        """,
    )
    assert [row["place"] for row in rows] == [1, 2]


def test_rows_beyond_the_limit_are_announced(answers):
    found, more = answers.ask("select * from history", 3)
    assert (found.num_rows, more) == (3, True)
    found, more = answers.ask("select * from history limit 3", 3)
    assert (found.num_rows, more) == (3, False)
    found, more = answers.ask("select * from range(0, 100000)", 9_000)
    assert (found.num_rows, more) == (9_000, True)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select * from nothing", "table 'nothing' not found"),
        ("select nothing from history", "No field named nothing"),
        ("select (", "SQL error"),
        ("select cast(kind as int) from history", "Cannot cast string"),
        ("select 1/0", "Divide by zero"),
        ("select * from '/etc/passwd'", "not found"),
        ("select * from read_csv('/etc/passwd')", "not found"),
        ("select * from information_schema.tables", "not found"),
    ],
)
def test_what_cannot_be_answered_names_what_there_is(answers, sql, said):
    with pytest.raises(BadQuery) as caught:
        answers.ask(sql, 10)
    text = str(caught.value)
    assert said in text
    assert "history: partition, offset, index, message_id" in text
    assert "messages: recipient" in text


def test_nothing_is_written(hub, answers, tmp_path):
    before = sorted(path for path in hub.data.rglob("*"))
    for sql in (
        f"copy (select 1) to '{tmp_path}/x.csv'",
        f"create external table t stored as csv location '{tmp_path}/x.csv'",
        "insert into history select * from history",
        "with x as (select 1) insert into history select * from history",
        "select * into t from history",
        "drop table history",
    ):
        with pytest.raises(BadQuery):
            answers.ask(sql, 10)
    assert sorted(path for path in hub.data.rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


def test_the_view_and_the_story_agree_on_every_status(tmp_path):
    """All orders of three rows of any kind, each as one message, in one table."""
    kinds = (*HISTORY_KINDS, "superseded", "dead")
    hub = Hub(tmp_path)
    cases = list(itertools.product(kinds, kinds, kinds))
    columns = [column.name for column in TABLES["history"].packed]
    dead_columns = [column.name for column in TABLES["dead_letters"].packed]

    def fill(tables):
        for number, case in enumerate(cases):
            for index, kind in enumerate(case):
                values = {
                    "partition": 0,
                    "offset": number,
                    "index": index,
                    "message_id": f"{number:032x}",
                    "sender": "a",
                    "recipient": "b",
                    "kind": kind,
                    "at_ms": index,
                    "known": _known(number, kind),
                    "category": "permanent",
                }
                table, names = (
                    ("dead_letters", dead_columns) if kind == "dead" else ("history", columns)
                )
                tables[table].append([values.get(name) for name in names])

    hub.commit(change=fill)
    found = {
        row["message_id"]: row["status"]
        for row in ask(open_answers(tmp_path), "select message_id, status from messages", 10_000)
    }
    for number, case in enumerate(cases):
        rows = [
            Row(kind=kind, at_ms=0, partition=0, offset=number, known=_known(number, kind))
            for kind in case
        ]
        assert found.get(f"{number:032x}", "unknown") == status(rows), case


def _known(number, kind):
    return (True, False, None)[number % 3] if kind in ("taken", "cancelled", "delivered") else None
