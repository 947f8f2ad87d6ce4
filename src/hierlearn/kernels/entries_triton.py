# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""Single entries in Triton: as the kernels of HCL read them, and the kernel of dropout.

With y in {0, 1} and z = (1 - 2y) x, the loss softplus(z) grows with z, which the constraint
compares. Functions that are FAST use single
instructions of NVIDIA GPUs; the plain forms are for everything else.
"""

import triton
import triton.language as tl

MINUS_INF = tl.constexpr(float("-inf"))  # z of an entry that is masked or out of bounds
LOWEST = tl.constexpr(-1e30)  # the same where an infinity would turn a sum or product into NaN


@triton.jit
def exp(x, FAST: tl.constexpr):
    """The exponential function; if FAST, results below the smallest normal number are 0."""
    LOG2_E: tl.constexpr = 1.4426950408889634
    if FAST:  # handling subnormal results takes three more instructions
        power = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * LOG2_E], tl.float32, is_pure=True, pack=1
        )
    else:
        power = tl.exp(x)
    return power


@triton.jit
def exp_minus(x, FAST: tl.constexpr):
    """exp(-x); see ``exp``."""
    MINUS_LOG2_E: tl.constexpr = -1.4426950408889634
    if FAST:
        power = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;",
            "=f,f", [x * MINUS_LOG2_E], tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        power = tl.exp(-x)
    return power


@triton.jit
def inverse(x, FAST: tl.constexpr):
    """1 / x for x >= 0.1."""
    if FAST:
        found = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1
        )
    else:
        found = 1.0 / x
    return found


@triton.jit
def is_wrong(z, FAST: tl.constexpr):
    """1.0 where z >= 0, else 0.0."""
    if FAST:  # one multiply-add, which is cheaper here: z 2^126 + 1, clamped to [0, 1]
        found = tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, 0f7E800000, 0f3F800000;",
            "=f,f", [z], tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        found = (z >= 0).to(tl.float32)
    return found


@triton.jit
def sign_of(y, FAST: tl.constexpr):
    """1 - 2y for y in {0, 1}."""
    if y.dtype.is_floating():
        sign = tl.where(y > 0.5, -1.0, 1.0)
    elif FAST:  # each byte becomes 1 + y / 2^15 in one instruction, without a comparison
        near_1 = tl.inline_asm_elementwise(
            """
            prmt.b32 $0, $4, 0x3F800000, 0x7604;
            prmt.b32 $1, $4, 0x3F800000, 0x7614;
            prmt.b32 $2, $4, 0x3F800000, 0x7624;
            prmt.b32 $3, $4, 0x3F800000, 0x7634;
            """,
            "=r,=r,=r,=r,r", [y], tl.int32, is_pure=True, pack=4,
        )  # fmt: skip
        sign = near_1.to(tl.float32, bitcast=True) * -65536.0 + 65537.0
    else:
        sign = tl.where(y != 0, -1.0, 1.0)
    return sign


@triton.jit
def signed(x, y, FAST: tl.constexpr):
    """Return z = (1 - 2y) x, and 1 - 2y."""
    sign = sign_of(y, FAST)
    if FAST and x.dtype == tl.bfloat16 and y.dtype == tl.uint8:
        # Two at a time: labels become sign bits, bfloat16 the upper half of float32.
        z = tl.inline_asm_elementwise(
            """
            {
            .reg .b32 a, b;
            prmt.b32 a, $6, 0, 0x1404;
            prmt.b32 b, $6, 0, 0x3424;
            shl.b32 a, a, 7;
            shl.b32 b, b, 7;
            xor.b32 a, a, $4;
            xor.b32 b, b, $5;
            shl.b32 $0, a, 16;
            and.b32 $1, a, 0xFFFF0000;
            shl.b32 $2, b, 16;
            and.b32 $3, b, 0xFFFF0000;
            }
            """,
            "=r,=r,=r,=r,r,r,r", [x, y], tl.int32, is_pure=True, pack=4,
        ).to(tl.float32, bitcast=True)  # fmt: skip
    else:
        z = x.to(tl.float32) * sign
    return z, sign


@triton.jit
def product_minus_1(a, b):
    """(1 + a)(1 + b) - 1, accurate for small a and b."""
    return a + b + a * b


@triton.jit
def log1p(x):
    """log(1 + x) for x >= 0, accurate for small x: the rounding of 1 + x is divided out."""
    u = 1.0 + x
    exact = u == 1.0
    return tl.where(exact, x, tl.log(u) * (x / tl.where(exact, 1.0, u - 1.0)))


# All arrays must be laid out alike over the threads, VEC columns each, whatever their dtype: else
# Triton converts layouts through shared memory. The hint belongs where the pointers are computed.


@triton.jit
def row_pointers(array, row, stride, cols, R: tl.constexpr, VEC: tl.constexpr):
    """Return the pointers of R rows from ``row`` on, for a loop over rows."""
    size: tl.constexpr = array.dtype.element_ty.primitive_bitwidth // 8
    begin = array + tl.cast(row, tl.int64) * stride
    at = begin + ((tl.arange(0, R) * stride)[:, None] + cols[None, :])
    return tl.multiple_of(at, (1, VEC * size))


@triton.jit
def column_pointers(array, rows, stride, cols, VEC: tl.constexpr):
    """Return the pointers of rows, for a loop over columns."""
    size: tl.constexpr = array.dtype.element_ty.primitive_bitwidth // 8
    at = (array + rows.to(tl.int64) * stride)[:, None] + cols[None, :]
    return tl.multiple_of(at, (1, VEC * size))


@triton.jit
def tile_columns(tile, C, B: tl.constexpr, EVEN: tl.constexpr):
    """Return the columns of a tile; if EVEN, the last tile is shifted left to end at C."""
    begin = tile * B
    if EVEN:
        begin = tl.minimum(begin, C - B)
    return begin + tl.arange(0, B)


@triton.jit
def load_tile(
    x_ptr, y_ptr, m_ptr, here, cols, C,
    MASKED: tl.constexpr, FAST: tl.constexpr, VEC: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return z, its sign 1 - 2y, and the mask of a tile; z of a masked entry is MINUS_INF.

    If EVEN, all entries are in bounds and loads need no check.
    """
    # C is a multiple of VEC: written so, the compiler sees one answer per VEC neighbors.
    known = here[:, None] & (cols // VEC < C // VEC)[None, :]
    if EVEN:
        x = tl.load(x_ptr)
        y = tl.load(y_ptr)
    else:
        x = tl.load(x_ptr, mask=known, other=MINUS_INF)
        y = tl.load(y_ptr, mask=known, other=0)
    z, sign = signed(x, y, FAST)
    if MASKED:
        known = (tl.load(m_ptr) if EVEN else tl.load(m_ptr, mask=known, other=0)) != 0
        z = tl.where(known, z, MINUS_INF)
    return z, sign, known


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
