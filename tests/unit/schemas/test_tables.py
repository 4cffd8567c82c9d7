import pytest

from schemas.tables import HISTORY_KINDS, TABLES, TABLES_BY_CODE, spark_ddl

TABLE_LIST = list(TABLES.values())
# Tables on disk have these columns in this order: a change needs a migration.
COLUMNS = {
    "inbox": "recipient sender message_id kind position priority message_class session_id counter"
    " received_at_ms expires_at_ms not_before_ms gap_before envelope envelope_hash expires_on",
    "history": "message_id sender recipient kind reason at_ms attempt session_id priority counter"
    " counter_to position known security said_at_ms expires_at_ms proof",
    "dead_letters": "message_id sender recipient reason category attempts first_attempt_at_ms"
    " last_attempt_at_ms moved_at_ms expires_at_ms",
    "quarantine": "at_ms code reason kind value value_size value_hash",
    "snapshots": "shard round at_ms core_version policy_number last_offset blob",
}


@pytest.mark.parametrize("table", TABLE_LIST, ids=lambda t: t.name)
def test_columns_are_frozen(table):
    names = [column.name for column in table.columns]
    expected = COLUMNS[table.name].split()
    assert names == ["partition", "offset", "index", *expected, "manifest", "row"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("table", TABLE_LIST, ids=lambda t: t.name)
def test_a_packed_row_lacks_what_the_sink_adds(table):
    assert table.packed == table.columns[:-2]
    assert [column.name for column in table.columns[-2:]] == ["manifest", "row"]


@pytest.mark.parametrize("table", TABLE_LIST, ids=lambda t: t.name)
def test_only_the_place_in_the_log_must_be_there(table):
    required = [column.name for column in table.columns if not column.nullable]
    assert required == ["partition", "offset", "index"]


def test_codes_are_frozen():
    assert {name: table.code for name, table in TABLES.items()} == {
        "inbox": 1,
        "history": 2,
        "dead_letters": 3,
        "quarantine": 4,
        "snapshots": 5,
    }
    assert all(TABLES_BY_CODE[table.code] is table for table in TABLE_LIST)


def test_only_the_inbox_is_partitioned_and_by_its_expiry():
    assert {t.name: t.partition_by for t in TABLE_LIST if t.partition_by} == {
        "inbox": ("expires_on",)
    }


@pytest.mark.parametrize("table", TABLE_LIST, ids=lambda t: t.name)
def test_times_and_offsets_are_long_and_everything_is_explained(table):
    for column in table.columns:
        assert column.doc
        assert column.type in {"string", "int", "long", "boolean", "binary"}
        if column.name.endswith("_ms") or column.name in {"offset", "position", "counter"}:
            assert column.type == "long"
    assert table.doc


def test_the_schema_in_text_quotes_every_name():
    assert spark_ddl(TABLES["snapshots"]) == (
        "`partition` INT NOT NULL, `offset` BIGINT NOT NULL, `index` INT NOT NULL, `shard` INT,"
        " `round` INT, `at_ms` BIGINT, `core_version` INT, `policy_number` INT,"
        " `last_offset` BIGINT, `blob` BINARY, `manifest` BIGINT, `row` INT"
    )
    assert "`gap_before` BOOLEAN" in spark_ddl(TABLES["inbox"])
    assert "`proof` BINARY" in spark_ddl(TABLES["history"])


def test_kinds_of_history_are_distinct_words():
    assert len(set(HISTORY_KINDS)) == len(HISTORY_KINDS) == 17
