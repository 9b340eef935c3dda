"""The Montgomery ladder of RFC 7748, section 5, in plain integers."""

from __future__ import annotations

P = 2**255 - 19

ORDER_EIGHT = (
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
)


def low_order_points() -> list[bytes]:
    """All encodings of points of order 1, 2, 4 and 8, on the curve and its twist; the top bit is ignored."""
    plain = [u.to_bytes(32, "little") for u in (0, 1, P - 1, P, P + 1)] + [bytes.fromhex(u) for u in ORDER_EIGHT]
    return plain + [point[:31] + bytes([point[31] | 0x80]) for point in plain]


def x25519(scalar: bytes, point: bytes) -> bytes:
    """Multiply the point by the clamped scalar; return the u coordinate."""
    k = int.from_bytes(scalar, "little")
    k = (k & ~7 & ~(1 << 255)) | (1 << 254)
    x1 = int.from_bytes(point, "little") % 2**255 % P
    x2, z2, x3, z3 = 1, 0, x1, 1
    swap = 0
    for t in reversed(range(255)):
        bit = (k >> t) & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b = (x2 + z2) % P, (x2 - z2) % P
        aa, bb = a * a % P, b * b % P
        e = (aa - bb) % P
        c, d = (x3 + z3) % P, (x3 - z3) % P
        da, cb = d * a % P, c * b % P
        x3, z3 = (da + cb) ** 2 % P, x1 * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")
