"""The control of the pipeline benchmark: the job with a query that decides nothing.

Same source, same shuffle, same sink, and as many rows of the same width; no state, no signature,
no rule. What the full query costs beyond it is what deciding costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from farpost import jars
from farpost.places import load_settings
from pipelines.fold import LogRecord
from pipelines.job import Options, log_to_stderr, run
from pipelines.packs import REPORT, Report, Row, chunks, encode_report
from pipelines.shard import CORE_VERSION
from pipelines.stateful import OUTPUT_SCHEMA
from schemas.envelope import Envelope
from schemas.records import RECORD_HEAD, Kind
from schemas.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INBOX, HISTORY = TABLES["inbox"].code, TABLES["history"].code


def pass_through(source: DataFrame, *, shards: int, partitions: int, seeds: str) -> DataFrame:
    """A query in place of `stateful.fold_query`."""
    state_partitions = int(source.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)

    def call(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            for shard, group in frame.groupby("shard"):
                yield _copy(int(str(shard)), group, partitions)

    return source.repartition(state_partitions, "shard").mapInPandas(call, OUTPUT_SCHEMA)


def _copy(shard: int, group: pd.DataFrame, partitions: int) -> pd.DataFrame:
    records: list[LogRecord] = sorted(
        zip(group["offset"], group["time_ms"], group["value"], strict=True)
    )
    inbox: list[Row] = []
    history: list[Row] = []
    for offset, time_ms, value in records:
        if value[0] == Kind.ENVELOPE:
            place: Row = [shard % partitions, int(offset)]
            envelope = Envelope.decode(bytes(value[RECORD_HEAD:]))
            inbox.append([*place, 0, *_inbox(envelope, int(time_ms), bytes(value[RECORD_HEAD:]))])
            history.append([*place, 1, *_history(envelope, int(time_ms))])
    offsets = [int(offset) for offset, _, _ in records]
    report = Report(
        shard=shard,
        partition=shard % partitions,
        offsets=offsets,
        outcomes=[int(value[0] == Kind.ENVELOPE) for _, _, value in records],
        orders=[],
        wake_at_ms=None,
        time_ms=0,
        policy_number=1 << 31,
        core_version=CORE_VERSION,
        touched=[],
    )
    packs = [(REPORT, encode_report(report))]
    packs += [(INBOX, pack) for pack in chunks(inbox)]
    packs += [(HISTORY, pack) for pack in chunks(history)]
    tables, values = zip(*packs, strict=True)
    return pd.DataFrame({"shard": shard, "table": tables, "pack": values})


def _inbox(envelope: Envelope, time_ms: int, raw: bytes) -> list[Any]:
    return [
        *(envelope.recipient.hex(), envelope.sender.hex(), envelope.message_id.hex()),
        *("stored", 1, envelope.priority, envelope.message_class, envelope.session_id.hex()),
        *(envelope.counter, time_ms, envelope.expires_at_s * 1000, None, False, raw),
        *(hashlib.sha256(raw).hexdigest(), "control"),
    ]


def _history(envelope: Envelope, time_ms: int) -> list[Any]:
    return [
        *(envelope.message_id.hex(), envelope.sender.hex(), envelope.recipient.hex()),
        *("stored", None, time_ms, None, envelope.session_id.hex(), envelope.priority),
        *(envelope.counter, None, 1, None, False, None, envelope.expires_at_s * 1000, None),
    ]


def main(arguments: list[str]) -> int:
    """Run the job with the control's query: data directory, log, port of the status."""
    data, bootstrap, port = arguments
    log_to_stderr()
    run(
        load_settings(),
        Options(
            data=Path(data),
            bootstrap=bootstrap,
            jars=tuple(jars.jars("spark")),
            status_port=int(port),
        ),
        query=pass_through,
    )
    return 0
