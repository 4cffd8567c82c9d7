import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from schemas import signing
from schemas.errors import BadAddress, BadSignature
from tests.unit.schemas.golden import KEY_A, KEY_B, NOT_ADDRESSES, A, B, golden

MESSAGE = b"some bytes"
ORDER = 2**252 + 27742317777372353535851937790883648493


def test_the_vectors_use_these_addresses():
    assert (golden("address-a"), golden("address-b")) == (A, B)


def test_a_tag_is_ascii_and_fills_16_bytes():
    assert signing.ENVELOPE == b"fp1/envelope\0\0\0\0"
    assert signing.ACK_BATCH == b"fp1/ackbatch\0\0\0\0"
    assert all(len(tag) == 16 and tag.startswith(b"fp1/") for tag in signing.TAGS)
    assert len(set(signing.TAGS)) == len(signing.TAGS) == 14


def test_what_is_signed_is_verified():
    signature = signing.sign(signing.ACK, MESSAGE, KEY_A)
    assert len(signature) == 64
    signing.verify(signing.ACK, MESSAGE, signature, A)
    signing.verify(signing.ACK, memoryview(MESSAGE), signature, A)


def test_another_implementation_makes_the_same_signature():
    other = Ed25519PrivateKey.from_private_bytes(bytes(KEY_A))
    signature = signing.sign(signing.ACK, MESSAGE, KEY_A)
    assert other.sign(b"fp1/ack" + bytes(9) + MESSAGE) == signature
    Ed25519PublicKey.from_public_bytes(A).verify(signature, signing.ACK + MESSAGE)


@pytest.mark.parametrize("tag", [tag for tag in signing.TAGS if tag != signing.ACK])
def test_a_signature_serves_one_purpose_only(tag):
    signature = signing.sign(signing.ACK, MESSAGE, KEY_A)
    with pytest.raises(BadSignature, match="not signed by 03a107bf…"):
        signing.verify(tag, MESSAGE, signature, A)


def test_an_untagged_signature_is_refused():
    signature = KEY_A.sign(MESSAGE).signature
    with pytest.raises(BadSignature):
        signing.verify(signing.ACK, MESSAGE, signature, A)


def test_another_device_did_not_sign_it():
    signature = signing.sign(signing.ACK, MESSAGE, KEY_B)
    with pytest.raises(BadSignature):
        signing.verify(signing.ACK, MESSAGE, signature, A)


@pytest.mark.parametrize("size", [0, 63, 65, 128])
def test_a_signature_of_another_size_is_refused(size):
    with pytest.raises(BadSignature, match="64 bytes"):
        signing.verify(signing.ACK, MESSAGE, bytes(size), A)


def test_the_second_form_of_a_signature_is_refused():
    signature = signing.sign(signing.ACK, MESSAGE, KEY_A)
    scalar = int.from_bytes(signature[32:], "little") + ORDER
    with pytest.raises(BadSignature):
        signing.verify(signing.ACK, MESSAGE, signature[:32] + scalar.to_bytes(32, "little"), A)


@pytest.mark.parametrize("address", [*NOT_ADDRESSES, b"", A[:31], A + b"\0"], ids=bytes.hex)
def test_what_no_device_can_own_is_not_an_address(address):
    with pytest.raises(BadAddress, match="not a device's public key"):
        signing.check_address(address)
    with pytest.raises(BadSignature, match="not a device's public key"):
        signing.verify(signing.ACK, MESSAGE, bytes(64), address)


def test_a_forged_signature_of_a_small_order_key_is_refused():
    # With the neutral element as key and as R, and S = 0, lenient verifiers accept any message.
    neutral = b"\x01" + bytes(31)
    with pytest.raises(BadSignature):
        signing.verify(signing.ACK, MESSAGE, neutral + bytes(32), neutral)


@given(st.binary(min_size=32, max_size=32))
def test_every_real_public_key_is_an_address(seed):
    signing.check_address(bytes(SigningKey(seed).verify_key))


def test_a_tag_of_another_size_is_our_own_bug():
    with pytest.raises(AssertionError):
        signing.sign(b"fp1/ack", MESSAGE, KEY_A)
