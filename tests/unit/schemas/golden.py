"""The pinned bytes of wire version 1 and the inputs that make them; also flips and cuts."""

import json
from pathlib import Path

from nacl.signing import SigningKey

WIRE_V1 = Path(__file__).parents[1] / "golden" / "wire_v1.json"

KEY_A = SigningKey(bytes(range(32)))
KEY_B = SigningKey(bytes(range(32, 64)))
A = bytes(KEY_A.verify_key)
B = bytes(KEY_B.verify_key)
MESSAGE_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
SESSION_ID = b"\x5e" * 32
TIME_MS = 1_800_000_001_234

# Points of small order; then address A plus one of them; then what is no point in canonical form.
NOT_ADDRESSES = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("b154bd62188ae283dd187fefe8c31f5e276edf083b4cff11c9d5cff856c74440"),
    b"\xff" * 32,
]


def golden(name):
    return bytes.fromhex(json.loads(WIRE_V1.read_text())[name])


def flips(data):
    """The same bytes with one bit turned, for every bit."""
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 0x80 >> bit % 8
        yield bytes(flipped)


def cuts(data):
    """The same bytes cut short at every length, and made longer."""
    yield from (data[:size] for size in range(len(data)))
    yield from (data + bytes(more) for more in (1, 2, 16, 64))
