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

RELEASE = tuple(int(part) for part in triton.__version__.split(".")[:2])
DIRECT = RELEASE >= (3, 4)  # before, the compiled form wants its arguments in another way


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
        self.rest = (*numbers, *constants.values())

    def first(self, at: dict[str, Any]) -> Callable[[int, tuple[int, ...]], None] | None:
        """Launch with the tensors of the names; return how to launch with stream and addresses."""
        pointers = [at[name] for name in self.names]
        compiled = self.kernel[self.grid](
            *pointers, *self.numbers, **self.constants, **self.options
        )
        if not DIRECT or compiled is None:  # the interpreter compiles nothing
            return None
        # The same call as Triton's own, without its hooks for profilers.
        run, grid, rest = compiled.run, self.grid, self.rest
        handle: tuple[Any, ...] = (compiled.function, compiled.packed_metadata, None, None, None)
        if RELEASE == (3, 6) and not run.global_scratch_size and not run.profile_scratch_size:
            # What its compiled form does when there is nothing to allocate.
            options = (run.launch_cooperative_grid, run.launch_pdl, None, None)
            handle, run = (handle[0], *options, *handle[1:]), run.launch

        def again(stream: int, pointers: tuple[int, ...]) -> None:
            run(*grid, stream, *handle, *pointers, *rest)

        return again
