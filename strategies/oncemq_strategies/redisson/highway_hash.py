"""HighwayHash of 128 bits with Redisson's key, in pure Python: the hash that an RBloomFilter computes of a value.

The algorithm is that of "Fast keyed hash/pseudo-random function using SIMD multiply and permute" (Alakuijala, Cox,
Wassenberg, 2016). Its four lanes of 64 bits live side by side in one integer: each is added without a carry into the
next, and bytes change places by one `bytes.translate`.
"""

import struct
from collections.abc import Iterable

_LANE = 2**64 - 1
_UNPACK_HALVES = struct.Struct("<8I").unpack
_PACK_LANES = struct.Struct("<4Q").pack
_from_bytes = int.from_bytes


def _packed(lanes: Iterable[int]) -> int:
    return sum(lane << (64 * position) for position, lane in enumerate(lanes))


def _halves_swapped(lane: int) -> int:
    return (lane >> 32 | lane << 32) & _LANE


_KEY = (0x9E3779B97F4A7C15, 0xF39CC0605CEDC834, 0x1082276BF3A27251, 0xF86C6A11D0C18E95)
_START_0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_START_1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_V0 = _packed(start ^ key for start, key in zip(_START_0, _KEY, strict=True))
_V1 = _packed(start ^ _halves_swapped(key) for start, key in zip(_START_1, _KEY, strict=True))
_M0, _M1 = _packed(_START_0), _packed(_START_1)
_TOP = _packed([1 << 63] * 4)
_REST = _packed([(1 << 63) - 1] * 4)
_ALL = 2**256 - 1
_ROUNDS = 6

# For each byte of the result, its source position; `translate` needs a table of 256.
_ZIPPER = bytes(
    place + half for half in (0, 16) for place in (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
)
_PERMUTED = bytes(8 * lane + (place + 4) % 8 for lane in (2, 3, 0, 1) for place in range(8))
_REST_OF_TABLE = bytes(224)

_State = tuple[int, int, int, int]


def hash128(data: bytes) -> tuple[int, int]:
    """Return the two halves, each an unsigned integer of 64 bits."""
    state: _State = (_V0, _V1, _M0, _M1)
    left = len(data) % 32
    for start in range(0, len(data) - left, 32):
        state = _updated(state, _from_bytes(data[start : start + 32], "little"))
    if left:
        state = _with_remainder(state, data[-left:])
    for _ in range(_ROUNDS):
        state = _updated(state, _shuffled(_PERMUTED, state[0].to_bytes(32, "little")))
    v0, v1, m0, m1 = state
    return (
        (v0 + m0 + (v1 >> 128) + (m1 >> 128)) & _LANE,
        ((v0 >> 64) + (m0 >> 64) + (v1 >> 192) + (m1 >> 192)) & _LANE,
    )


def _updated(state: _State, packet: int) -> _State:
    v0, v1, m0, m1 = state
    v1 = _added(v1, _added(m0, packet))
    v1_bytes = v1.to_bytes(32, "little")
    low1 = _UNPACK_HALVES(v1_bytes)
    m0 ^= _products(low1, _UNPACK_HALVES(v0.to_bytes(32, "little")))
    v0 = _added(v0, m1)
    m1 ^= _products(_UNPACK_HALVES(v0.to_bytes(32, "little")), low1)
    v0 = _added(v0, _shuffled(_ZIPPER, v1_bytes))
    v1 = _added(v1, _shuffled(_ZIPPER, v0.to_bytes(32, "little")))
    return v0, v1, m0, m1


def _with_remainder(state: _State, data: bytes) -> _State:
    """Absorb the last 1 to 31 bytes."""
    v0, v1, m0, m1 = state
    size = len(data)
    v0 = _added(v0, _packed([(size << 32) + size] * 4))
    turned_in = _packed([((1 << size) - 1) << 32 | (1 << size) - 1] * 4)
    v1 = (v1 << size & ~turned_in | v1 >> (32 - size) & turned_in) & _ALL
    whole, odd = size & ~3, size & 3
    packet = bytearray(32)
    packet[:whole] = data[:whole]
    if size & 16:
        packet[28:] = data[-4:]
    elif odd:
        packet[16:19] = data[whole], data[whole + (odd >> 1)], data[-1]
    return _updated((v0, v1, m0, m1), _from_bytes(packet, "little"))


def _added(left: int, right: int) -> int:
    return ((left & _REST) + (right & _REST)) ^ ((left ^ right) & _TOP)


def _products(low: tuple[int, ...], high: tuple[int, ...]) -> int:
    """Multiply the lower half of each lane of `low` by the upper half of the same of `high`."""
    return _from_bytes(
        _PACK_LANES(low[0] * high[1], low[2] * high[3], low[4] * high[5], low[6] * high[7]), "little"
    )


def _shuffled(places: bytes, lanes: bytes) -> int:
    return _from_bytes(places.translate(lanes + _REST_OF_TABLE), "little")
