"""The counter-based random numbers of the prims `uniform_philox` and `normal_philox`, as `dovetail.prims.random` defines them.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a block number and an offset under a seed give four words.
"""

from __future__ import annotations

import math

from dovetail import dtypes
from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value
from dovetail_llvm_exec.region.exprs import Draw
from dovetail_llvm_exec.vmath import FUNCTIONS

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round
ROUNDS = 10
BITS = {dtypes.float64: 53, dtypes.float32: 24, dtypes.float16: 11, dtypes.bfloat16: 8}


def words(b: Builder, block: Value, seed: Value, offset: Value) -> list[Value]:
    """Return the four words of each block, as int64; `seed` and `offset` are int64 in as many lanes."""
    low = b.constant(0xFFFFFFFF, block.type)
    counter = [b.and_(block, low), b.lshr(block, 32), b.and_(offset, low), b.lshr(offset, 32)]
    key = [b.and_(seed, low), b.lshr(seed, 32)]
    for _ in range(ROUNDS):
        first, second = b.mul(counter[0], MULTIPLIERS[0]), b.mul(counter[2], MULTIPLIERS[1])
        turned = b.xor(b.xor(b.lshr(second, 32), counter[1]), key[0])
        other = b.xor(b.xor(b.lshr(first, 32), counter[3]), key[1])
        counter = [turned, b.and_(second, low), other, b.and_(first, low)]
        key = [b.and_(b.add(k, weyl), low) for k, weyl in zip(key, WEYL, strict=True)]
    return counter


def _picked(b: Builder, of: list[Value], which: Value) -> Value:
    """Pick word number `which` of four, lane by lane."""
    low, high = (b.select(b.compare("eq", b.and_(which, 1), 0), of[i], of[i + 1]) for i in (0, 2))
    return b.select(b.compare("lt", which, 2), low, high)


def _unit(b: Builder, word: Value, bits: int) -> Value:
    """Return a word of 32 bits as a float64 in [0, 1) of its top bits."""
    return b.mul(b.convert(b.lshr(word, 32 - bits), "double"), 2.0**-bits)


def _wide_unit(b: Builder, low: Value, high: Value) -> Value:
    """Return two words as a float64 in [0, 1) of 53 bits."""
    return b.mul(b.convert(b.or_(b.shl(high, 21), b.lshr(low, 11)), "double"), 2.0**-53)


def uniform(b: Builder, draw: Draw, position: Value, seed: Value, offset: Value) -> Value:
    """Draw float64 numbers in [low, high)."""
    bits = BITS[draw.dtype]
    if bits <= 32:
        block_words = words(b, b.lshr(position, 2), seed, offset)
        unit = _unit(b, _picked(b, block_words, b.and_(position, 3)), bits)
    else:
        block_words = words(b, b.lshr(position, 1), seed, offset)
        odd = b.compare("ne", b.and_(position, 1), 0)
        unit = _wide_unit(b, b.select(odd, block_words[2], block_words[0]), b.select(odd, block_words[3], block_words[1]))
    return b.add(b.mul(unit, draw.high - draw.low), draw.low)


def normal(b: Builder, draw: Draw, position: Value, seed: Value, offset: Value) -> Value:
    """Draw float64 numbers of a normal distribution, two from each two uniform ones (Box and Muller, 1958)."""
    odd = b.compare("ne", b.and_(position, 1), 0)
    if draw.dtype is dtypes.float64:
        block_words = words(b, b.lshr(position, 1), seed, offset)
        first, second = _wide_unit(b, block_words[0], block_words[1]), _wide_unit(b, block_words[2], block_words[3])
    else:
        block_words = words(b, b.lshr(position, 2), seed, offset)
        later = b.compare("ne", b.and_(position, 2), 0)
        first, second = (_unit(b, b.select(later, block_words[i + 2], block_words[i]), 24) for i in (0, 1))
    radius = b.sqrt(b.mul(FUNCTIONS["log1p"](b, b.neg(first)), -2.0))
    angle = b.mul(second, 2 * math.pi)
    wave = b.select(odd, FUNCTIONS["sin"](b, angle), FUNCTIONS["cos"](b, angle))
    return b.add(b.mul(b.mul(radius, wave), draw.high), draw.low)


DRAWS = {"uniform_philox": uniform, "normal_philox": normal}
