"""Made-up devices and signed frames with sane defaults; the same call gives the same bytes.

alice, bob = device(1), device(2)
data = envelope(sender=alice, recipient=bob, n=7)            # message 7 of the lane
receipt = ack(data, signer=bob)                              # bob has retrieved it
cancel = signal(data, kind=SignalKind.CANCEL, signer=alice)
void = lane_signal(signer=alice, peer=bob, kind=SignalKind.VOID, counter=8)
"""

import hashlib
from functools import lru_cache

from nacl.signing import SigningKey

from schemas.acks import AckType, sign_ack, sign_batch
from schemas.envelope import Envelope, envelope_hash, seal_signed
from schemas.signals import SignalKind, sign_signal

NOW_S = 1_800_000_000  # every frame is made at this moment unless told otherwise
NOW_MS = NOW_S * 1_000
DAY_S = 86_400


@lru_cache(maxsize=65_536)
def device(n):
    """The key of made-up device number n; `address(device(n))` is its address."""
    return SigningKey(hashlib.sha256(b"device %d" % n).digest())


def address(key):
    return bytes(key.verify_key)


def message_id(n):
    return hashlib.sha256(b"message %d" % n).digest()[:16]


def session_id(n=1):
    return hashlib.sha256(b"session %d" % n).digest()


def envelope(*, sender=None, recipient=None, n=1, session=1, **fields):
    """The bytes of message n, which has counter n unless told otherwise.

    `recipient` is a key or an address; any field of `seal_signed` may be given.
    """
    recipient = device(2) if recipient is None else recipient
    defaults = {
        "message_id": message_id(n),
        "session_id": session_id(session),
        "counter": n,
        "created_at_s": NOW_S,
        "expires_at_s": NOW_S + 7 * DAY_S,
        "payload": b"sealed %d" % n,
    }
    return seal_signed(
        key=sender or device(1),
        recipient=recipient if isinstance(recipient, bytes) else address(recipient),
        **defaults | fields,
    )


def ack(data, *, signer=None, ack_type=AckType.RECEIPT, timestamp_ms=NOW_MS, **fields):
    """Signer and frame (153 bytes) for the envelope `data`, by device 2 unless told otherwise."""
    acked = Envelope.decode(data)
    return sign_ack(
        key=signer or device(2),
        ack_type=ack_type,
        timestamp_ms=timestamp_ms,
        **{"message_id": acked.message_id, "sender": acked.sender} | fields,
    )


def ack_batch(datas, *, signer=None, ack_type=AckType.RECEIPT, timestamp_ms=NOW_MS):
    """One batch for envelopes of one sender."""
    acked = [Envelope.decode(data) for data in datas]
    return sign_batch(
        key=signer or device(2),
        ack_type=ack_type,
        message_ids=tuple(one.message_id for one in acked),
        sender=acked[0].sender,
        timestamp_ms=timestamp_ms,
    )


def signal(data, *, kind=SignalKind.CANCEL, signer=None, time_ms=NOW_MS, arg=0, **fields):
    """A signal about the envelope `data`: the signer is its sender (CANCEL) or device 2."""
    about = Envelope.decode(data)
    by_sender = kind == SignalKind.CANCEL
    return sign_signal(
        key=signer or device(1 if by_sender else 2),
        kind=kind,
        time_ms=time_ms,
        arg=arg,
        **{
            "peer": about.recipient if by_sender else about.sender,
            "message_id": about.message_id,
            "hash_prefix": envelope_hash(data)[:16],
        }
        | fields,
    )


def lane_signal(
    *,
    kind=SignalKind.VOID,
    counter=1,
    signer=None,
    peer=None,
    session=1,
    priority=1,
    time_ms=NOW_MS,
):
    """A signal about one counter of the lane (signer, session, priority) to `peer`."""
    return sign_signal(
        key=signer or device(1),
        kind=kind,
        peer=address(peer or device(2)),
        session_id=session_id(session),
        priority=priority,
        arg=counter,
        time_ms=time_ms,
    )
