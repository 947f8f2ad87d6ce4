# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernel of dropout: what each entry is multiplied with, from seeds and counters."""

import triton
import triton.language as tl

GAMMA = tl.constexpr(-0x61C8864680B583EB)
FIRST = tl.constexpr(-0x40A7B892E31B1A47)
SECOND = tl.constexpr(-0x6B2FB644ECCEEE15)


@triton.jit
def write_scales(seeds, scales, begin, size, limit, scale, B: tl.constexpr):
    """Write 0 or ``scale`` for the entries of one member; see ``networks/layers.py``."""
    member = tl.program_id(1)
    entry = tl.program_id(0) * B + tl.arange(0, B)
    z = (tl.load(seeds + member) + begin + entry // 4) * GAMMA
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * FIRST
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * SECOND
    z = z ^ ((z >> 31) & ((1 << 33) - 1))
    drawn = ((z >> (16 * (entry % 4))) & 0xFFFF).to(tl.int32)
    drawn = tl.where(drawn >= 0x8000, drawn - 0x10000, drawn)
    out = tl.where(drawn <= limit, scale, 0.0)
    tl.store(scales + tl.cast(member, tl.int64) * size + entry, out, mask=entry < size)
