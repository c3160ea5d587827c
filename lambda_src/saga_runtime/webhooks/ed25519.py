"""Ed25519: test of a signature by a public key (RFC 8032, section 5.1.7). Pure, and of public values only.

Nothing here is secret, so its time may depend on its input. It takes some milliseconds.
https://www.rfc-editor.org/rfc/rfc8032#section-5.1
"""

from __future__ import annotations

import hashlib
from typing import Final

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

_P: Final = 2**255 - 19
"""Order of the field."""
_L: Final = 2**252 + 27742317777372353535851937790883648493
"""Order of the group of the base point."""
_D: Final = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_1: Final = pow(2, (_P - 1) // 4, _P)

_Point = tuple[int, int, int, int]
"""X, Y, Z and T of the curve's point (X/Z, Y/Z), with T = XY/Z."""
_NEUTRAL: Final[_Point] = (0, 1, 1, 0)


def is_public_key(key: bytes) -> bool:
    """True for a point of the curve that is neither of small order nor written in two ways.

    Under a key of small order, signatures of any content could be made by anybody.
    """
    point = _decompress(key)
    return point is not None and not _is_neutral(_twice(_twice(_twice(point))))


def is_genuine(key: bytes, content: bytes, signature: bytes) -> bool:
    """True if the owner of a public key signed a content.

    Args:
        key: the public key, 32 bytes.
        content: what was signed.
        signature: 64 bytes. Its second half must be below the group's order: others would be a second signature.
    """
    public = _decompress(key)
    commitment, s = signature[:KEY_BYTES], int.from_bytes(signature[KEY_BYTES:], "little")
    if public is None or len(signature) != SIGNATURE_BYTES or s >= _L:
        return False
    challenge = int.from_bytes(hashlib.sha512(commitment + key + content).digest(), "little") % _L
    return _compress(_sum_of_products(s, _BASE, challenge, _negative(public))) == commitment


def _sum_of_products(a: int, first: _Point, b: int, second: _Point) -> _Point:
    """``a`` times one point and ``b`` times another, bit by bit for both at once."""
    both = _sum(first, second)
    result = _NEUTRAL
    for bit in range(max(a.bit_length(), b.bit_length()) - 1, -1, -1):
        result = _twice(result)
        match a >> bit & 1, b >> bit & 1:
            case 1, 1:
                result = _sum(result, both)
            case 1, 0:
                result = _sum(result, first)
            case 0, 1:
                result = _sum(result, second)
    return result


def _sum(p: _Point, q: _Point) -> _Point:
    """Sum of two points: complete, for equal and neutral ones too."""
    a = (p[1] - p[0]) * (q[1] - q[0]) % _P
    b = (p[1] + p[0]) * (q[1] + q[0]) % _P
    c = 2 * p[3] * q[3] * _D % _P
    d = 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _twice(p: _Point) -> _Point:
    return _sum(p, p)


def _negative(p: _Point) -> _Point:
    return -p[0] % _P, p[1], p[2], -p[3] % _P


def _is_neutral(p: _Point) -> bool:
    return p[0] == 0 and p[1] == p[2]


def _compress(p: _Point) -> bytes:
    inverse = pow(p[2], -1, _P)
    x, y = p[0] * inverse % _P, p[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(KEY_BYTES, "little")


def _decompress(text: bytes) -> _Point | None:
    """The point in 32 bytes; None if these bytes are not its one form."""
    if len(text) != KEY_BYTES:
        return None
    number = int.from_bytes(text, "little")
    y, odd = number & (1 << 255) - 1, number >> 255
    if y >= _P:
        return None
    x = _root((y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P)
    if x is None or (x == 0 and odd):
        return None
    x = x if x & 1 == odd else _P - x
    return x, y, 1, x * y % _P


def _root(square: int) -> int | None:
    """A square root in the field; None if it does not exist."""
    x = pow(square, (_P + 3) // 8, _P)
    for root in (x, x * _ROOT_OF_MINUS_1 % _P):
        if root * root % _P == square:
            return root
    return None


_BASE_Y: Final = 4 * pow(5, -1, _P) % _P
_BASE: Final = _decompress(_BASE_Y.to_bytes(KEY_BYTES, "little")) or _NEUTRAL
