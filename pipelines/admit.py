"""The gate before the state: bytes of the log in, an input or a refusal out.

Every size, every byte and every signature is checked here, so that no rule of the mailbox ever
sees a record that its signer did not make.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.inputs import (
    Acked,
    Arrived,
    Cancelled,
    CounterPassed,
    Input,
    Noted,
    PolicyChanged,
    SnapshotAsked,
    Taken,
    Ticked,
)
from pipelines.turn import SHORT_HASH
from schemas.acks import AckType, open_signed_ack, open_signed_batch
from schemas.envelope import envelope_hash, open_signed
from schemas.errors import BadAck, BadRecord
from schemas.records import (
    Kind,
    decode_policy,
    decode_record,
    decode_snapshot,
    decode_tick,
    shard_of,
)
from schemas.signals import Signal, SignalKind, open_signed_signal


def admit(value: bytes, shard: int, shards: int) -> Input:
    """Turn a record's value into an input, or raise the DeliveryError that says what is wrong."""
    record = decode_record(value)
    if record.shard != shard:
        raise BadRecord(
            f"the record names shard {record.shard} but lies where shard {shard} is read;"
            " its producer uses other numbers of shards or partitions than this hub"
        )
    opener = _OPENERS.get(record.kind)
    if opener is None:
        raise BadRecord(f"records of kind {record.kind} are not served by this release")
    item = opener(record.body)
    mailbox: bytes | None = getattr(item, "mailbox", None)
    if mailbox is not None and shard_of(mailbox, shards) != shard:
        raise BadRecord(
            f"the mailbox {mailbox.hex()[:16]}… does not belong to shard {shard};"
            " the producer must take the shard from the recipient"
        )
    return item


def _open_envelope(body: bytes) -> Input:
    envelope = open_signed(body)
    return Arrived(
        mailbox=envelope.recipient,
        envelope=envelope,
        envelope_hash=envelope_hash(body),
        raw=body,
    )


def _open_ack(body: bytes) -> Input:
    signed = open_signed_ack(body)
    ack = signed.ack
    return Acked(
        mailbox=signed.signer,
        sender=ack.sender,
        message_ids=(ack.message_id,),
        read=_is_read(ack.ack_type),
        said_at_ms=ack.timestamp_ms,
        proof=body,
    )


def _open_batch(body: bytes) -> Input:
    signed = open_signed_batch(body)
    return Acked(
        mailbox=signed.signer,
        sender=signed.sender,
        message_ids=signed.batch.message_ids,
        read=_is_read(signed.batch.ack_type),
        said_at_ms=signed.batch.timestamp_ms,
        proof=body,
    )


def _is_read(ack_type: int) -> bool:
    if ack_type == AckType.DELIVERY:
        raise BadAck("0x01 is the hub's own word: a recipient acknowledges with 0x02 or 0x03")
    return ack_type == AckType.READ


def _open_signal(body: bytes) -> Input:
    signal = open_signed_signal(body)
    if signal.session_id is not None:
        return _open_lane_signal(signal, signal.session_id, body)
    assert signal.message_id is not None
    assert signal.hash_prefix is not None
    if signal.kind in _SETTLING:
        return _SETTLING[signal.kind](
            mailbox=signal.mailbox,
            sender=signal.sender,
            message_id=signal.message_id,
            short_hash=signal.hash_prefix[:SHORT_HASH],
            said_at_ms=signal.time_ms,
            proof=body,
        )
    return Noted(
        mailbox=signal.mailbox,
        sender=signal.sender,
        message_id=signal.message_id,
        kind=signal.kind.name.lower(),
        argument=signal.arg,
        said_at_ms=signal.time_ms,
        proof=body,
    )


_SETTLING: dict[SignalKind, type[Taken] | type[Cancelled]] = {
    SignalKind.TAKEN: Taken,
    SignalKind.CANCEL: Cancelled,
}


def _open_lane_signal(signal: Signal, session_id: bytes, body: bytes) -> Input:
    assert signal.priority is not None
    return CounterPassed(
        mailbox=signal.mailbox,
        sender=signal.sender,
        session_id=session_id,
        priority=signal.priority,
        counter=signal.arg,
        elsewhere=signal.kind == SignalKind.ELSEWHERE,
        said_at_ms=signal.time_ms,
        proof=body,
    )


def _open_tick(body: bytes) -> Input:
    decode_tick(body)
    return Ticked()


def _open_snapshot(body: bytes) -> Input:
    return SnapshotAsked(round=decode_snapshot(body))


def _open_policy(body: bytes) -> Input:
    number, _, policy = decode_policy(body)
    return PolicyChanged(number=number, body=policy)


_OPENERS: dict[int, Callable[[bytes], Input]] = {
    Kind.ENVELOPE: _open_envelope,
    Kind.ACK: _open_ack,
    Kind.ACK_BATCH: _open_batch,
    Kind.SIGNAL: _open_signal,
    Kind.TICK: _open_tick,
    Kind.SNAPSHOT: _open_snapshot,
    Kind.POLICY: _open_policy,
}
