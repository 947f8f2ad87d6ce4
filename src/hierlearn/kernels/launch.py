"""Launch: a Triton kernel with its grid and its numbers, launched again and again.

Triton's own way to launch looks at every argument to find out which compiled form to use, some
tens of microseconds a launch. Where a plan has settled all that, the second launch goes straight to
the compiled form, with plain addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Before this release the compiled form wants its arguments in another way.
DIRECT = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 4)


class Launch:
    """One kernel of a plan.

    Every launch must bring tensors of the same types, on the same device, and addresses that are
    multiples of 16 where those of the first launch were.

    Args:
        kernel: the Triton function; its arguments are pointers, then numbers, then constants.
        grid: how many programs, one number or more.
        names: the names of the pointers.
        numbers: the numbers.
        constants: the compile-time constants by name, in order.
        options: how Triton compiles it: warps, and perhaps a limit of registers.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        names: str,
        numbers: Sequence[float],
        constants: dict[str, Any],
        options: dict[str, int],
    ) -> None:
        self.kernel = kernel
        self.grid = (*grid, 1, 1)[:3]
        self.names = names.split()
        self.numbers = tuple(numbers)
        self.constants = constants
        self.options = options
        self.again: Callable[..., None] | None = None
        self.handle: tuple[Any, ...] = ()
        self.rest = (*numbers, *constants.values())

    def first(self, at: dict[str, Any]) -> None:
        """Launch with the tensors of the names, and see to it that ``fire`` can."""
        pointers = [at[name] for name in self.names]
        compiled = self.kernel[self.grid](
            *pointers, *self.numbers, **self.constants, **self.options
        )
        if DIRECT and compiled is not None:  # the interpreter compiles nothing
            # The same call as Triton's own, without its hooks for profilers.
            self.handle = (compiled.function, compiled.packed_metadata, None, None, None)
            self.again = compiled.run

    def fire(self, pointers: tuple[int, ...], stream: int) -> None:
        """Launch again, with addresses."""
        assert self.again is not None
        self.again(*self.grid, stream, *self.handle, *pointers, *self.rest)
