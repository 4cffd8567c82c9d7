"""The topics of the log: their names, and how the ones we create are configured."""

from dataclasses import dataclass, field
from typing import Final

MESSAGE_SIZE_MAX: Final = 270_336  # the largest record and its framing
_HOUR_MS = 3_600_000
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of all topics of one deployment."""

    prefix: str = ""

    @property
    def inbound(self) -> str:
        """Everything the hub learns: the truth."""
        return f"{self.prefix}inbound"

    @property
    def dispatch(self) -> str:
        """Orders to deliver, and marks that a manifest is committed."""
        return f"{self.prefix}dispatch"

    @property
    def registry(self) -> str:
        """The newest statement of each device."""
        return f"{self.prefix}registry"

    @property
    def live(self) -> str:
        """What is only for a recipient that is connected now."""
        return f"{self.prefix}live"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """How to create one topic."""

    name: str
    partitions: int
    replication: int
    configs: dict[str, str] = field(default_factory=dict)


def specs(*, prefix: str, partitions: int, replication: int) -> tuple[TopicSpec, ...]:
    """The topics to create at set-up, `inbound` first; the others come with what needs them."""
    topics = Topics(prefix)
    durable = _durability(replication)
    return (
        TopicSpec(
            name=topics.inbound,
            partitions=partitions,
            replication=replication,
            configs={
                # The log's own clock is the only clock that the fold sees.
                "message.timestamp.type": "LogAppendTime",
                # Only an explicit trim removes records, never age or size.
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "segment.bytes": str(64 * 1024 * 1024),
                "segment.ms": str(_HOUR_MS),
                "max.message.bytes": str(MESSAGE_SIZE_MAX),
                **durable,
            },
        ),
        TopicSpec(
            name=topics.dispatch,
            partitions=1,
            replication=replication,
            configs={
                "cleanup.policy": "delete",
                "retention.ms": str(_DAY_MS),
                "segment.bytes": str(64 * 1024 * 1024),
                "segment.ms": str(_HOUR_MS),
                **durable,
            },
        ),
    )


def _durability(replication: int) -> dict[str, str]:
    if replication == 1:
        # With one copy an acknowledged record must be on the disk, not only in the page cache.
        return {"flush.messages": "1", "min.insync.replicas": "1"}
    return {
        "min.insync.replicas": str(max(1, replication - 1)),
        "unclean.leader.election.enable": "false",
    }
