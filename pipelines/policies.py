"""The policy in force for a data directory: a file that says what every shard should follow.

The file is the intent; a record in the log is what makes a shard follow it. The clock sends that
record to every shard that reports an older number.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from schemas.errors import BadSettings
from schemas.policy import Policy


class PolicyFile(msgspec.Struct, frozen=True):
    number: int
    policy: Policy


def read_policy(data: Path) -> PolicyFile | None:
    """What applies here; None before the log was made."""
    try:
        return msgspec.json.decode((data / "policy.json").read_bytes(), type=PolicyFile)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, BadSettings) as error:
        raise BadSettings(
            f"{data / 'policy.json'} cannot be read ({error}); delete it and run"
            " `farpost config apply`, which writes it anew from the settings"
        ) from error


def put_policy(data: Path, policy: Policy) -> PolicyFile:
    """Make `policy` the one that applies; the number grows only if it is another one."""
    current = read_policy(data)
    if current is not None and current.policy == policy:
        return current
    newest = PolicyFile(1 if current is None else current.number + 1, policy)
    path = data / "policy.json"
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(newest))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return newest
