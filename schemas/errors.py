"""Every error a part of farpost raises on purpose; `code` and `e_code` are stable, texts are not.

DeliveryError                 internal              500
├── BadInput                  bad_input             400  the caller is wrong; do not retry
│   ├── BadEnvelope           bad_envelope          400
│   │   └── TooLarge          too_large             413  E006
│   ├── BadAck                bad_ack               400
│   ├── BadSignal             bad_signal            400
│   ├── BadTtl                bad_ttl               400
│   ├── BadRecord             bad_record            400
│   ├── BadSignature          bad_signature         401
│   ├── BadAddress            bad_address           400
│   ├── BadSettings           bad_settings          400
│   ├── BadQuery              bad_query             400
│   └── NotFound              not_found             404
├── Unavailable               unavailable           503  retrying may help
│   ├── BrokerUnavailable     broker_unavailable    503  E004
│   └── DiskFull              disk_full             503  E004
└── OperatorError             operator_error        500  a person must act; the text says what to do
    ├── AlreadyRunning        already_running       500
    ├── PortBusy              port_busy             500
    ├── MissingTool           missing_tool          500
    ├── StartFailed           start_failed          500
    ├── LogChanged            log_changed           500
    ├── TableDamaged          table_damaged         500
    ├── StateDamaged          state_damaged         500
    ├── CheckpointDamaged     checkpoint_damaged    500
    ├── ManifestDamaged       manifest_damaged      500
    ├── CoreVersionChanged    core_version_changed  500
    ├── Fenced                fenced                500
    └── Conflict              conflict              409
"""

from enum import StrEnum
from typing import ClassVar


class ECode(StrEnum):
    """The error codes a sender's device acts on."""

    NETWORK_UNREACHABLE = "E001"
    CIRCUIT_BUILD_FAILED = "E002"
    DHT_LOOKUP_FAILED = "E003"
    STORAGE_FAILED = "E004"
    RECIPIENT_NOT_FOUND = "E005"
    MESSAGE_TOO_LARGE = "E006"
    RATE_LIMITED = "E007"
    ENCRYPTION_FAILED = "E008"
    SESSION_INVALID = "E009"
    TTL_EXPIRED = "E010"


class DeliveryError(Exception):
    """Base class; the text is for people, `code` for programs."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    e_code: ClassVar[ECode | None] = None


class BadInput(DeliveryError):
    """The input is wrong: the same bytes will be refused again."""

    code = "bad_input"
    http_status = 400


class BadEnvelope(BadInput):
    """The bytes are not an envelope."""

    code = "bad_envelope"


class TooLarge(BadEnvelope):
    """The envelope is larger than any envelope may be."""

    code = "too_large"
    http_status = 413
    e_code = ECode.MESSAGE_TOO_LARGE


class BadAck(BadInput):
    """The bytes are not an ack, or not a batch of acks."""

    code = "bad_ack"


class BadSignal(BadInput):
    """The bytes are not a signal."""

    code = "bad_signal"


class BadTtl(BadInput):
    """The bytes are not a TTL header."""

    code = "bad_ttl"


class BadRecord(BadInput):
    """The bytes are not a record of the log."""

    code = "bad_record"


class BadSignature(BadInput):
    """The signature was not made by the key that is named, over these bytes, for this purpose."""

    code = "bad_signature"
    http_status = 401


class BadAddress(BadInput):
    """The bytes are not the public key of any device."""

    code = "bad_address"


class BadSettings(BadInput):
    """A setting is unknown, of the wrong type or out of range."""

    code = "bad_settings"


class BadQuery(BadInput):
    """A question that cannot be answered as it was asked."""

    code = "bad_query"


class NotFound(BadInput):
    """Nothing by that name is known."""

    code = "not_found"
    http_status = 404


class Unavailable(DeliveryError):
    """Something outside is missing for now: retrying may help."""

    code = "unavailable"
    http_status = 503


class BrokerUnavailable(Unavailable):
    """The log cannot be reached."""

    code = "broker_unavailable"
    e_code = ECode.STORAGE_FAILED


class DiskFull(Unavailable):
    """There is no space left to write."""

    code = "disk_full"
    e_code = ECode.STORAGE_FAILED


class OperatorError(DeliveryError):
    """A person must act: the text says what happened and what to do next."""

    code = "operator_error"


class AlreadyRunning(OperatorError):
    """Another process already works on this data directory."""

    code = "already_running"


class PortBusy(OperatorError):
    """A port that was asked for belongs to another program."""

    code = "port_busy"


class MissingTool(OperatorError):
    """A program that farpost needs is not installed."""

    code = "missing_tool"


class StartFailed(OperatorError):
    """A part did not become ready."""

    code = "start_failed"


class LogChanged(OperatorError):
    """The topic is not the one that the tables were made from."""

    code = "log_changed"


class TableDamaged(OperatorError):
    """A table does not hold what its manifest says."""

    code = "table_damaged"


class StateDamaged(OperatorError):
    """The saved state of a shard cannot be read."""

    code = "state_damaged"


class CheckpointDamaged(OperatorError):
    """The checkpoint of the query cannot be used."""

    code = "checkpoint_damaged"


class ManifestDamaged(OperatorError):
    """A manifest cannot be read or does not follow the one before it."""

    code = "manifest_damaged"


class CoreVersionChanged(OperatorError):
    """The state was written by another version of the rules and was not stopped cleanly."""

    code = "core_version_changed"


class Fenced(OperatorError):
    """Another driver has taken over; this one must stop."""

    code = "fenced"


class Conflict(OperatorError):
    """More than one thing fits what was asked for."""

    code = "conflict"
    http_status = 409
