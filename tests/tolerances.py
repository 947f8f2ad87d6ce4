"""The one table of tolerances: how closely floating-point results must agree, and why."""

from typing import Any, NamedTuple

import pytest
import torch


class Tolerance(NamedTuple):
    """|actual - expected| <= atol + rtol * |expected|."""

    rtol: float
    atol: float

    def assert_close(self, actual: Any, expected: Any) -> None:
        """Assert that tensors, or nested lists and dicts of them, agree in values and dtypes."""
        torch.testing.assert_close(actual, expected, rtol=self.rtol, atol=self.atol)

    def approx(self, expected: Any) -> Any:
        """Return what compares equal to numbers or lists that agree; NaN equals NaN."""
        return pytest.approx(expected, rel=self.rtol, abs=self.atol, nan_ok=True)


# Double precision, some hundred operations of 1e-16 each.
FLOAT64 = Tolerance(rtol=1e-12, atol=1e-12)
# Double precision where two formulas cancel differently, or a sum has thousands of terms.
FLOAT64_SUMS = Tolerance(rtol=1e-7, atol=1e-7)
# Single precision, some operations of 6e-8 each; the defaults of torch.
FLOAT32 = Tolerance(rtol=1.3e-6, atol=1e-5)
# Single precision, sums of up to some thousand terms, and an exp with two units in the last place.
FLOAT32_SUMS = Tolerance(rtol=2e-5, atol=1e-6)
# Single precision, matmuls and sums of many thousand terms in another order.
FLOAT32_MATMUL = Tolerance(rtol=1e-4, atol=1e-6)
# A result of single precision rounded to 8 or 11 bits: two units in the last place of bfloat16.
HALF_ROUNDED = Tolerance(rtol=8e-3, atol=1e-4)
# Every operation rounds to 8 or 11 bits.
HALF = Tolerance(rtol=0.05, atol=0.05)
# Central differences of gradients in single precision: a step of 1e-2 leaves 1e-4 of curvature and
# 1e-5 of rounding.
FINITE_DIFFERENCES = Tolerance(rtol=2e-2, atol=1e-3)
# Forward differences in double precision with a step of 1e-7.
FORWARD_DIFFERENCES = Tolerance(rtol=1e-6, atol=1e-6)
# A figure of a paper, printed with three or four digits.
PRINTED_3_DIGITS = Tolerance(rtol=0.0, atol=5e-4)
PRINTED_4_DIGITS = Tolerance(rtol=0.0, atol=5e-5)
