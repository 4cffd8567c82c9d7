"""Tagged Ed25519 signatures and the check of addresses.

Every signed preimage starts with a 16-byte tag that names its purpose, so a signature made for one
purpose never serves another. An address is a device's public key, so no directory is needed.
"""

from functools import lru_cache
from typing import Final

from nacl.bindings import crypto_sign_ed25519_pk_to_curve25519, crypto_sign_open
from nacl.exceptions import BadSignatureError
from nacl.exceptions import RuntimeError as SodiumError
from nacl.signing import SigningKey

from schemas.errors import BadAddress, BadSignature

ADDRESS_SIZE: Final = 32
SIGNATURE_SIZE: Final = 64
TAG_SIZE: Final = 16


def _tag(name: str) -> bytes:
    return name.encode("ascii").ljust(TAG_SIZE, b"\0")


ENVELOPE: Final = _tag("fp1/envelope")
ACK: Final = _tag("fp1/ack")
ACK_BATCH: Final = _tag("fp1/ackbatch")
SACK: Final = _tag("fp1/sack")
SIGNAL: Final = _tag("fp1/signal")
STORED: Final = _tag("fp1/stored")
FETCH: Final = _tag("fp1/fetch")
ROUTE: Final = _tag("fp1/route")
BUNDLE: Final = _tag("fp1/bundle")
REPLICAS: Final = _tag("fp1/replicas")
LISTS: Final = _tag("fp1/lists")
WEBHOOK: Final = _tag("fp1/webhook")
NODE: Final = _tag("fp1/node")
SESSION: Final = _tag("fp1/session")  # starts a hash, not a signature

TAGS: Final = (
    *(ENVELOPE, ACK, ACK_BATCH, SACK, SIGNAL, STORED, FETCH, ROUTE),
    *(BUNDLE, REPLICAS, LISTS, WEBHOOK, NODE, SESSION),
)


def sign(tag: bytes, message: bytes, key: SigningKey) -> bytes:
    """Sign tag and message; only the 64 bytes of the signature are returned."""
    assert len(tag) == TAG_SIZE
    return key.sign(tag + message).signature


def verify(tag: bytes, message: bytes | memoryview, signature: bytes, address: bytes) -> None:
    """Raise BadSignature unless the address signed this message for the purpose of this tag."""
    if len(signature) != SIGNATURE_SIZE:
        raise BadSignature(f"a signature has {SIGNATURE_SIZE} bytes, this one {len(signature)}")
    if not _is_address(address):
        raise BadSignature(f"the signer {address[:4].hex()}… is not a device's public key")
    try:
        crypto_sign_open(b"".join((signature, tag, message)), address)
    except BadSignatureError:
        raise BadSignature(f"not signed by {address[:4].hex()}… for this purpose") from None


def check_address(address: bytes) -> None:
    """Raise BadAddress unless a device can own this key: a key of small order is nobody's."""
    if not _is_address(address):
        raise BadAddress(f"{len(address)} bytes {address[:4].hex()}… are not a device's public key")


@lru_cache(maxsize=65_536)
def _is_address(address: bytes) -> bool:
    if len(address) != ADDRESS_SIZE:
        return False
    try:
        crypto_sign_ed25519_pk_to_curve25519(address)
    except SodiumError:
        return False
    return True
