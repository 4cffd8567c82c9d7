"""The tables as `farpost sql` shows them, as SQL text: no ciphertext, and the view `messages`.

`messages` has one row per (recipient, sender, message_id). `outcome` is the word of the
conservation check, `status` the word a person sees; `farpost.story.status` says the same one.
"""

from __future__ import annotations

from schemas.tables import TABLES

HIDDEN = {"inbox": "envelope", "history": "proof", "quarantine": "value", "snapshots": "blob"}

MESSAGES_COLUMNS = (
    "recipient",
    "sender",
    "message_id",
    "status",
    "outcome",
    "first_at_ms",
    "last_at_ms",
    "position",
    "expires_at_ms",
    "session_id",
    "priority",
    "counter",
    "accepted",
    "duplicates",
    "refusals",
)

# One row per message: how often each kind of row occurred. A signal that met no such message
# (known = false) changed nothing, but a receipt that came late still counts.
_COUNTED = """
    select recipient, sender, message_id,
        min(at_ms) as first_at_ms, max(at_ms) as last_at_ms, max("position") as "position",
        max(expires_at_ms) as expires_at_ms, max(session_id) as session_id,
        max(priority) as priority, max(counter) as counter,
        sum(case when kind in ('stored', 'held', 'scheduled') then 1 else 0 end) as accepted,
        sum(case when kind = 'duplicate' then 1 else 0 end) as duplicates,
        sum(case when kind = 'refused' then 1 else 0 end) as refusals,
        max(case when kind = 'read' then 1 else 0 end) as is_read,
        max(case when kind in ('delivered', 'read') then 1 else 0 end) as is_delivered,
        max(case when kind = 'taken' and coalesce(known, true) then 1 else 0 end) as is_taken,
        max(case when kind = 'cancelled' and coalesce(known, true) then 1 else 0 end)
            as is_cancelled,
        max(case when kind = 'expired' then 1 else 0 end) as is_expired,
        max(case when kind = 'superseded' then 1 else 0 end) as is_superseded,
        max(case when kind = 'held' then 1 else 0 end) as is_held,
        max(case when kind in ('stored', 'released') then 1 else 0 end) as is_fetchable
    from history where message_id <> '' group by recipient, sender, message_id
"""

_DEAD = """
    select distinct recipient, sender, message_id from dead_letters where category <> 'cancelled'
"""

_JUDGED = f"""
    select m.*, case
        when accepted = 0 then 'refused'
        when is_delivered = 1 then 'delivered'
        when is_taken = 1 then 'taken'
        when is_cancelled = 1 then 'cancelled'
        when is_expired = 1 then 'expired'
        when is_superseded = 1 then 'superseded'
        when d.message_id is not null then 'dead'
        else 'in_flight' end as outcome
    from ({_COUNTED}) m left join ({_DEAD}) d
    on m.recipient = d.recipient and m.sender = d.sender and m.message_id = d.message_id
    where m.accepted + m.refusals > 0
"""  # noqa: S608  every part is a constant of this file

MESSAGES = f"""
    select recipient, sender, message_id, case
        when outcome in ('refused', 'dead') then 'failed'
        when outcome = 'delivered' and is_read = 1 then 'read'
        when outcome <> 'in_flight' then outcome
        when is_fetchable = 1 then 'stored'
        when is_held = 1 then 'queued'
        else 'scheduled' end as status,
        outcome, first_at_ms, last_at_ms, "position", expires_at_ms, session_id, priority, counter,
        accepted, duplicates, refusals
    from ({_JUDGED}) judged
"""  # noqa: S608  every part is a constant of this file


def visible_columns(table: str) -> tuple[str, ...]:
    """The columns of a table or view that a query may name."""
    if table == "messages":
        return MESSAGES_COLUMNS
    hidden = HIDDEN.get(table)
    return tuple(c.name for c in TABLES[table].columns if c.name != hidden)


def tables_text() -> str:
    """What there is to ask about: one line per table, for error messages and help."""
    names = [*TABLES, "messages"]
    return "\n".join(f"  {name}: {', '.join(visible_columns(name))}" for name in names)
