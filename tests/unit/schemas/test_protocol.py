"""PROTOCOL.md cannot drift: its vectors are the pinned bytes, its numbers those of the code."""

import json
import re
from pathlib import Path

import pytest

import schemas
from schemas import acks, envelope, policy, records, signals, signing, ttl
from schemas.limits import TIME_MS_MAX
from tests.unit.schemas.golden import WIRE_V1

TEXT = (Path(schemas.__file__).parent / "PROTOCOL.md").read_text()
VECTORS = dict(re.findall(r"^```vector (\S+)\n([0-9a-f\n]+)```$", TEXT, re.MULTILINE))
ROW = re.compile(r"^\| (\d+) \| (\d+) \| (\w+)", re.MULTILINE)


def section(title):
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def layout(title):
    return [(int(at), int(size), name) for at, size, name in ROW.findall(section(title))]


def test_the_document_and_the_pinned_bytes_have_the_same_vectors():
    # That the code makes these bytes is tested where each format is tested.
    pinned = json.loads(WIRE_V1.read_text())
    assert {name: text.replace("\n", "") for name, text in VECTORS.items()} == pinned


@pytest.mark.parametrize(
    ("name", "opener"),
    [
        ("envelope", envelope.open_signed),
        ("ack", acks.open_signed_ack),
        ("ack-batch", acks.open_signed_batch),
        ("signal-nak", signals.open_signed_signal),
        ("signal-cancel", signals.open_signed_signal),
        ("signal-void", signals.open_signed_signal),
        ("ttl", ttl.TtlHeader.decode),
        ("record-ack", records.decode_record),
        ("record-tick", records.decode_record),
        ("record-snapshot", records.decode_record),
        ("record-policy", records.decode_record),
    ],
)
def test_every_vector_is_accepted(name, opener):
    opener(bytes.fromhex(VECTORS[name]))


@pytest.mark.parametrize(
    ("title", "size"),
    [("Envelope", 144), ("Ack", 121), ("Signal", 173), ("TTL header", 13)],
)
def test_fields_follow_each_other_without_a_hole(title, size):
    at = 0
    for offset, length, _ in layout(title):
        assert offset == at
        at += length
    assert at == size


def test_sizes_in_the_text_are_those_of_the_code():
    sizes = (acks.ACK_SIZE, acks.SIGNED_ACK_SIZE, signals.SIGNAL_SIZE, ttl.TTL_SIZE)
    assert sizes == (121, 153, 173, 13)
    for number in (envelope.ENVELOPE_MAX, records.VALUE_MAX, TIME_MS_MAX, policy.JSON_SIZE_MAX):
        assert f"{number:,}" in TEXT
    assert f"1 to {acks.BATCH_IDS_MAX:,} messages" in TEXT


@pytest.mark.parametrize("kind", list(records.Kind), ids=lambda k: k.name)
def test_every_kind_of_record_is_listed_with_its_origin(kind):
    row = re.search(rf"^\| {kind.value} \| .* \| (\w+) \|$", section("Records of the log"), re.M)
    assert row[1] == ("hub" if kind in records.INTERNAL_KINDS else "device")


@pytest.mark.parametrize("kind", list(signals.SignalKind), ids=lambda k: k.name)
def test_every_kind_of_signal_is_listed_with_its_signer(kind):
    pattern = rf"^\| {kind:02x}(?: \+ priority)? \| {kind.name}\b.* \| (\w+) → (\w+) \|"
    sides = re.search(pattern, section("Signal"), re.M).groups()
    by_recipient = kind < signals.SignalKind.CANCEL
    assert sides == (("recipient", "sender") if by_recipient else ("sender", "recipient"))


def test_every_tag_is_named():
    for tag in signing.TAGS:
        assert f"`{tag.rstrip(bytes(1)).decode()}`" in section("Signatures")
