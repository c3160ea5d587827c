"""Ed25519: the vectors of RFC 8032, the package ``cryptography`` as the oracle, and forged signatures."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from saga_runtime.webhooks.ed25519 import is_genuine, is_public_key

VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
            "655141438e7a100b"
        ),
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
            "b00d291612bb0c00"
        ),
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
            "c027beceea1ec40a"
        ),
    ),
]
"""Public key, message and signature of RFC 8032, section 7.1."""
ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19
SMALL = [
    "00" * 32,
    "01" + "00" * 31,
    "ec" + "ff" * 30 + "7f",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
]
"""Points of orders 4, 1, 2, 8 and 8."""


@pytest.mark.parametrize(("key", "message", "signature"), VECTORS)
def test_a_published_vector_is_genuine(key: str, message: str, signature: str) -> None:
    assert is_public_key(bytes.fromhex(key))
    assert is_genuine(bytes.fromhex(key), bytes.fromhex(message), bytes.fromhex(signature))


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=80), st.integers(0, 2**512 - 1), st.booleans())
def test_only_what_cryptography_accepts_is_genuine(seed: bytes, content: bytes, noise: int, changed: bool) -> None:
    private = Ed25519PrivateKey.from_private_bytes(seed)
    key = private.public_key().public_bytes_raw()
    signature = private.sign(content)
    if changed:
        bit = 1 << noise % 512
        signature = (int.from_bytes(signature, "little") ^ bit).to_bytes(64, "little")

    assert is_public_key(key)
    assert is_genuine(key, content, signature) == _accepts(key, content, signature) == (not changed)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=8), st.binary(min_size=64, max_size=64))
def test_bytes_of_a_stranger_are_not_genuine(key: bytes, content: bytes, signature: bytes) -> None:
    assert not (is_public_key(key) and is_genuine(key, content, signature))


def _accepts(key: bytes, content: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except InvalidSignature:
        return False
    return True


@pytest.mark.parametrize("key", SMALL)
def test_a_key_of_small_order_is_refused(key: str) -> None:
    assert not is_public_key(bytes.fromhex(key))


@pytest.mark.parametrize(
    "key",
    [
        b"",
        bytes(31),
        bytes(33),
        b"\xff" * 32,
        FIELD.to_bytes(32, "little"),
        (FIELD + 3).to_bytes(32, "little"),
        (1 | 1 << 255).to_bytes(32, "little"),
        (2).to_bytes(32, "little"),
    ],
)
def test_what_is_not_a_point_in_its_one_form_is_refused(key: bytes) -> None:
    assert not is_public_key(key)
    assert not is_genuine(key, b"", bytes(64))


def test_a_second_form_of_a_signature_is_refused() -> None:
    key, message, signature = (bytes.fromhex(text) for text in VECTORS[1])
    larger = int.from_bytes(signature[32:], "little") + ORDER
    assert not is_genuine(key, message, signature[:32] + larger.to_bytes(32, "little"))


@pytest.mark.parametrize("cut", [0, 32, 63, 65])
def test_a_signature_of_another_length_is_refused(cut: int) -> None:
    key, message, signature = (bytes.fromhex(text) for text in VECTORS[1])
    assert not is_genuine(key, message, (signature + b"\0")[:cut])
