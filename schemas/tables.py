"""The tables of the hub: columns, codes, table partitions and what each column means.

In memory a row is a list of values in the order of `packed`; the sink adds `manifest` and `row`.
Ids, addresses and hashes are lower-case hex; times are Unix milliseconds of the log's clock.
"""

from dataclasses import dataclass
from typing import Final

_SPARK_TYPES = {
    "string": "STRING",
    "int": "INT",
    "long": "BIGINT",
    "boolean": "BOOLEAN",
    "binary": "BINARY",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `type` is string, int, long, boolean or binary."""

    name: str
    type: str
    doc: str
    nullable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; `code` names it in packed rows."""

    name: str
    code: int
    doc: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()

    @property
    def packed(self) -> tuple[Column, ...]:
        """The columns of a packed row: all but the two that the sink adds."""
        return self.columns[: -len(_TAIL)]


_HEAD = (
    Column("partition", "int", "partition of the log", nullable=False),
    Column("offset", "long", "offset of the record that made this row", nullable=False),
    Column("index", "int", "which row of that record, from 0", nullable=False),
)
_TAIL = (
    Column("manifest", "long", "number of the manifest that committed the row"),
    Column("row", "int", "place of the row in that manifest"),
)
_INBOX = (
    Column("recipient", "string", "address of the mailbox"),
    Column("sender", "string", "address that signed the envelope"),
    Column("message_id", "string", "id the sender chose"),
    Column("kind", "string", "stored, held, scheduled or released"),
    Column("position", "long", "place in the mailbox; null while it cannot be fetched"),
    Column("priority", "int", "0 low, 1 normal, 2 high"),
    Column("message_class", "int", "class of the envelope"),
    Column("session_id", "string", "session of the lane"),
    Column("counter", "long", "number in the lane, 0 = unordered"),
    Column("received_at_ms", "long", "when the log took the envelope"),
    Column("expires_at_ms", "long", "applied expiry; null = never"),
    Column("not_before_ms", "long", "when a scheduled message becomes fetchable"),
    Column("gap_before", "boolean", "released although an earlier message is missing"),
    Column("envelope", "binary", "the bytes as they came; null in a released row"),
    Column("envelope_hash", "string", "SHA-256 of the envelope without its signature"),
    Column("expires_on", "string", "day, week or month of the expiry, or never"),
)
_HISTORY = (
    Column("message_id", "string", "id the sender chose; null for a word about a lane"),
    Column("sender", "string", "address of the sender"),
    Column("recipient", "string", "address of the mailbox"),
    Column("kind", "string", "what happened"),
    Column("reason", "string", "why"),
    Column("at_ms", "long", "when, by the log's clock"),
    Column("attempt", "int", "number of the delivery attempt"),
    Column("session_id", "string", "session of the lane"),
    Column("priority", "int", "priority of the lane"),
    Column("counter", "long", "number in the lane, or first of a gap"),
    Column("counter_to", "long", "last number of a gap"),
    Column("position", "long", "place in the mailbox that was given"),
    Column("known", "boolean", "false: the shard did not know the message any more"),
    Column("security", "boolean", "true: somebody should look at this"),
    Column("said_at_ms", "long", "time that the signer of an ack or signal wrote"),
    Column("expires_at_ms", "long", "applied expiry"),
    Column("proof", "binary", "the signed bytes as they came"),
)
_DEAD_LETTERS = (
    Column("message_id", "string", "id the sender chose"),
    Column("sender", "string", "address of the sender"),
    Column("recipient", "string", "address of the mailbox"),
    Column("reason", "string", "why it was given up"),
    Column("category", "string", "cancelled, retriable or permanent"),
    Column("attempts", "int", "how often it was tried"),
    Column("first_attempt_at_ms", "long", "first attempt"),
    Column("last_attempt_at_ms", "long", "last attempt"),
    Column("moved_at_ms", "long", "when it was given up"),
    Column("expires_at_ms", "long", "when the dead letter goes"),
)
_QUARANTINE = (
    Column("at_ms", "long", "when, by the log's clock"),
    Column("code", "string", "stable code of the error"),
    Column("reason", "string", "what is wrong, in words"),
    Column("kind", "int", "kind of the record, if it could be read"),
    Column("value", "binary", "the record as it came, or its beginning"),
    Column("value_size", "int", "size of the record in bytes"),
    Column("value_hash", "string", "SHA-256 of the record"),
)
_SNAPSHOTS = (
    Column("shard", "int", "shard whose state this is"),
    Column("round", "int", "round of the request that asked for it"),
    Column("at_ms", "long", "when, by the log's clock"),
    Column("core_version", "int", "version of the rules that wrote it"),
    Column("policy_number", "int", "policy in force"),
    Column("last_offset", "long", "last record that it includes"),
    Column("blob", "binary", "the state"),
)

HISTORY_KINDS: Final = (
    *("stored", "held", "scheduled", "duplicate", "refused"),
    *("released", "gap", "void", "elsewhere"),
    *("delivered", "read", "taken", "cancelled", "expired"),
    *("nak", "term", "undecryptable"),
)


def _table(
    code: int, name: str, doc: str, columns: tuple[Column, ...], *partition_by: str
) -> Table:
    return Table(
        name=name,
        code=code,
        doc=doc,
        columns=_HEAD + columns + _TAIL,
        partition_by=partition_by,
    )


TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        _table(1, "inbox", "accepted envelopes and their releases", _INBOX, "expires_on"),
        _table(2, "history", "one row for each change of any message", _HISTORY),
        _table(3, "dead_letters", "messages that were given up", _DEAD_LETTERS),
        _table(4, "quarantine", "records that could not be applied", _QUARANTINE),
        _table(5, "snapshots", "state of the shards, to rebuild from", _SNAPSHOTS),
    )
}
TABLES_BY_CODE: Final[dict[int, Table]] = {table.code: table for table in TABLES.values()}


def spark_ddl(table: Table) -> str:
    """The columns as Spark writes a schema in text; names are quoted, `partition` is a keyword."""
    return ", ".join(
        f"`{column.name}` {_SPARK_TYPES[column.type]}{'' if column.nullable else ' NOT NULL'}"
        for column in table.columns
    )
