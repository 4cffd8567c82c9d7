"""The allowed range of every numeric setting, in one table, and the sentence for a wrong value."""

from typing import Final

from schemas.errors import BadSettings

TIME_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999: later times cannot be shown

_HOUR_S = 3_600
_DAY_S = 86_400
_DAY_MS = 86_400_000

RANGES: Final[dict[str, tuple[int, int]]] = {
    "kafka.replication": (1, 7),
    "log.shards": (1, 4_096),
    "log.partitions": (1, 1_024),
    "log.keep_ms": (0, 90 * _DAY_MS),
    "job.trigger_ms": (100, 60_000),
    "job.state_partitions": (1, 1_024),
    "job.driver_memory_mb": (512, 65_536),
    "job.max_offsets_per_trigger": (0, 1_000_000),
    "job.snapshot_interval_ms": (60_000, _DAY_MS),
    "stack.stop_timeout_ms": (1_000, 600_000),
    "stack.restart_backoff_ms": (100, 60_000),
    "stack.restart_backoff_max_ms": (1_000, 3_600_000),
    "policy.expiry_cap_s": (_HOUR_S, 90 * _DAY_S),
    "policy.expiry_ahead_max_s": (_DAY_S, 366 * _DAY_S),
    "policy.expiry_remaining_min_s": (0, _DAY_S),
    "policy.expiry_tolerance_s": (0, _HOUR_S),
    "policy.gap_max": (1, 10_000),
    "policy.held_max": (1, 10_000),
    "policy.gap_timeout_ms": (1_000, _DAY_MS),
    "policy.retransmit_span": (1, 1_000),
    "policy.recent_ids_max": (0, 65_536),
    "policy.skipped_ranges_max": (1, 10_000),
    "policy.never_lane_idle_s": (60, 30 * _DAY_S),
}


def check_range(key: str, value: object, *, origin: str = "") -> int:
    """The value, if it is a whole number in the key's range; `origin` names where it came from."""
    least, most = RANGES[key]
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise BadSettings(wrong(key, value, f"a whole number from {least} to {most}", origin=origin))


def wrong(key: str, value: object, allowed: str, *, origin: str = "") -> str:
    """The sentence that tells a person which setting to change, and to what."""
    shown = repr(value)
    if len(shown) > 80:
        shown = shown[:77] + "…"
    return f"{key} = {shown}{f' (from {origin})' if origin else ''}: must be {allowed}"
