"""Launch: one Triton kernel with settled arguments, launched over and over.

Triton's own launcher inspects every argument to find the compiled variant, which takes tens of
microseconds per launch. A launch plan has settled all of that, so from the second launch on the
compiled variant is called directly, with plain addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RELEASE = tuple(int(part) for part in triton.__version__.split(".")[:2])
DIRECT = RELEASE >= (3, 4)  # earlier releases pass the arguments differently


class Launch:
    """One kernel of a plan.

    Every launch must pass tensors of the same dtypes, on the same device, aligned to 16 bytes where
    those of the first launch were.

    Args:
        kernel: the Triton function; its arguments are pointers, then numbers, then constants.
        grid: the number of programs, in one to three dimensions.
        names: the names of the pointers.
        numbers: the numbers.
        constants: the compile-time constants by name, in order.
        options: how Triton compiles it: warps, and possibly a limit on registers.
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

    def compile_and_run(self, at: dict[str, Any]) -> Callable[[int, tuple[int, ...]], None] | None:
        """Launch with tensors by name; return a function that replays it with plain addresses."""
        pointers = [at[name] for name in self.names]
        compiled = self.kernel[self.grid](
            *pointers, *self.numbers, **self.constants, **self.options
        )
        if not DIRECT or compiled is None:  # the interpreter compiles nothing
            return None
        # The same call as Triton's own, without the profiler hooks.
        run, grid, rest = compiled.run, self.grid, self.rest
        handle: tuple[Any, ...] = (compiled.function, compiled.packed_metadata, None, None, None)
        if RELEASE == (3, 6) and not run.global_scratch_size and not run.profile_scratch_size:
            # What Triton does when there is no scratch memory to allocate.
            options = (run.launch_cooperative_grid, run.launch_pdl, None, None)
            handle, run = (handle[0], *options, *handle[1:]), run.launch

        def replay(stream: int, pointers: tuple[int, ...]) -> None:
            run(*grid, stream, *handle, *pointers, *rest)

        return replay
