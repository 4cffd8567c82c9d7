"""`farpost check` from a data directory: open the tables, read the log, judge, fold again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from farpost.answers import Answers, open_answers
from farpost.check import check_tables
from farpost.conservation import Finding, Link, LogPart, Verdict
from farpost.files import check_files
from farpost.places import Layout
from farpost.retained import LogRecord, Retained, read_log, retained, summarize
from farpost.stack import bootstrap
from pipelines import kafka
from pipelines.manifest import LogId, ManifestStore
from pipelines.topics import read_known_log
from schemas.errors import BrokerUnavailable, LogChanged, ManifestDamaged
from schemas.settings import Settings
from schemas.topics import Topics

if TYPE_CHECKING:
    from kafka import KafkaConsumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The verdict, and what was not looked at and why."""

    verdict: Verdict
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """Where the log of a data directory is, and how it is cut."""

    topic: str
    shards: int
    partitions: int


def prove(data: Path, settings: Settings, *, refold: bool = False) -> Proof:
    """Check one data directory as of its newest manifest; a broker that is away is only noted."""
    answers = open_answers(data)
    check_files(answers)
    links = _links(ManifestStore(data / "manifests"), answers.manifest.number)
    layout = Layout(data)
    log = _known_log(layout, settings)
    try:
        return _prove_with_log(answers, links, settings, layout, log, refold=refold)
    except BrokerUnavailable as error:
        verdict = check_tables(answers, links, None, times_ms={}, shards=log.shards)
        return Proof(verdict=verdict, notes=(f"the log was not checked: {error}",))


def _prove_with_log(
    answers: Answers,
    links: list[Link],
    settings: Settings,
    layout: Layout,
    log: _Log,
    *,
    refold: bool,
) -> Proof:
    consumer = _consumer(settings, layout, log, answers.manifest.log)
    try:
        span = retained(
            log.topic,
            kafka.begin_offsets(consumer, log.topic),
            kafka.end_offsets(consumer, log.topic),
            answers.manifest.next_offsets,
        )
        records = read_log(consumer, log.topic, span)
        return _prove(answers, links, records, span, log, refold=refold)
    finally:
        consumer.close()


def _prove(
    answers: Answers,
    links: list[Link],
    records: Iterable[LogRecord],
    span: Retained,
    log: _Log,
    *,
    refold: bool,
) -> Proof:
    from farpost import refold as again

    notes: list[str] = []
    findings: list[Finding] = []
    if refold and not again.can_refold(span):
        notes.append("the log no longer begins at its first record: it cannot be folded again")
    elif refold:
        records = list(records)
        findings.append(
            again.refold(answers, records, shards=log.shards, partitions=log.partitions)
        )
    parts: list[LogPart]
    times_ms: Mapping[int, int]
    parts, times_ms = summarize(records, span)
    verdict = check_tables(answers, links, parts, times_ms=times_ms, shards=log.shards)
    return Proof(
        verdict=replace(verdict, findings=(*verdict.findings, *findings)), notes=tuple(notes)
    )


def _links(store: ManifestStore, newest: int) -> list[Link]:
    """The chain as far back as it is kept; one that cannot be read shows as missing."""
    links = []
    for number in store.numbers():
        if number > newest:
            break
        try:
            manifest, file_hash = store.read_with_hash(number)
        except ManifestDamaged:
            continue
        links.append(
            Link(
                number=number,
                ranges=manifest.ranges,
                next_offsets=manifest.next_offsets,
                previous_hash=manifest.previous_hash,
                file_hash=file_hash,
            )
        )
    return links


def _known_log(layout: Layout, settings: Settings) -> _Log:
    known = read_known_log(layout.data)
    if known is not None:
        return _Log(
            topic=known.topic,
            shards=known.shards,
            partitions=known.partitions,
        )
    return _Log(
        topic=Topics(settings.kafka.topic_prefix).inbound,
        shards=settings.log.shards,
        partitions=settings.log.partitions,
    )


def _consumer(settings: Settings, layout: Layout, log: _Log, made_from: LogId) -> KafkaConsumer:
    """A consumer of the very log the tables were made from."""
    where = bootstrap(settings, layout)
    admin = kafka.admin(settings, where)
    try:
        found = kafka.log_identity(admin, log.topic)
    finally:
        admin.close()
    if found != (made_from.cluster_id, made_from.topic_id):
        raise LogChanged(
            f"the log at {where} is not the one that {layout.data} was made from: point"
            " kafka.bootstrap back to it"
        )
    return kafka.consumer(settings, where)
