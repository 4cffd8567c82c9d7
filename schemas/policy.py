"""The numbers that decide what becomes of a message; a change of them is a record of the log."""

from typing import Self

import msgspec

from schemas.errors import BadSettings
from schemas.limits import check_range

JSON_SIZE_MAX = 16_384


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One set of rules; every field has a range, and a value outside it raises BadSettings."""

    expiry_cap_s: int = 2_592_000  # a later expiry is brought forward to this
    expiry_ahead_max_s: int = 7_776_000  # an expiry even later than this is refused
    expiry_remaining_min_s: int = 3_600  # less than this left to live on arrival is refused …
    expiry_tolerance_s: int = 300  # … but for this much
    gap_max: int = 1_000  # a counter further ahead than this is refused
    held_max: int = 1_000  # messages of one lane that wait for an earlier one
    gap_timeout_ms: int = 300_000  # how long the oldest of them waits
    retransmit_span: int = 10  # counters asked for again after a gap
    recent_ids_max: int = 4_096  # ids a shard remembers beyond its pending messages
    skipped_ranges_max: int = 1_000  # gaps a lane remembers
    never_lane_idle_s: int = 86_400  # a lane whose messages never expire is forgotten after this

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_range(f"policy.{name}", getattr(self, name))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read what `to_json` wrote; a field that is not there has its default."""
        if len(data) > JSON_SIZE_MAX:
            raise BadSettings(f"a policy has at most {JSON_SIZE_MAX} bytes, this one {len(data)}")
        try:
            values = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadSettings(f"a policy must be JSON: {error}") from None
        if not isinstance(values, dict):
            raise BadSettings("a policy must be a JSON object of names and whole numbers")
        for key in values:
            if key not in cls.__struct_fields__:
                raise BadSettings(f"policy.{key[:80]}: there is no such setting")
        return cls(**values)

    def to_json(self) -> bytes:
        """The same bytes for the same policy, on every machine."""
        return msgspec.json.encode(self, order="sorted")
