"""Compile what plans launch, for an NVIDIA GPU, on a machine without one; see test_compile.py.

The interpreter of the other tests takes what the compiler rejects, such as a variable that changes
its shape in a loop.
"""

import sys

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel

from hierlearn import Hierarchy
from hierlearn.hierarchy import LabelSpace
from hierlearn.kernels.hcl_plan import KernelSpec, SelectionOptions
from hierlearn.kernels.tree import LinkPlan, MCPlan
from hierlearn.kernels.tree_plan import TreePlan

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.uint8: "*u8",
    torch.bool: "*u8",
}


def compile_launch(launch, tensors):
    """Compile a launch as it would be on an NVIDIA GPU; return what tells it from others."""
    constants = dict(launch.constants)
    if "FAST" in constants:
        constants["FAST"] = True
    pointers = [TYPES[tensors[name].dtype] for name in launch.names]
    numbers = ["fp32" if isinstance(one, float) else "i32" for one in launch.numbers]
    types = [*pointers, *numbers, *["constexpr"] * len(constants)]
    signature = dict(zip(launch.kernel.arg_names, types, strict=True))
    key = (launch.kernel.__name__, *sorted(constants.items()), *types)
    if key not in DONE:
        source = ASTSource(launch.kernel, signature, constants)
        compiled = compile_kernel(source, target=TARGET, options=dict(launch.options))
        assert compiled.asm["cubin"]
        DONE.add(key)


DONE: set = set()


def compile_plan(plan, **tensors):
    """Compile all launches of a plan."""
    arrays = {**plan.memory.arrays(plan.new_block()), **plan.constants, **tensors}
    for launches in plan.launches.values():
        for launch in launches:
            compile_launch(launch, arrays)


def main():
    hierarchy = Hierarchy.from_paths(
        ["a/b/c", "a/b/d", "a/e", "f", *(f"m/n/{i}" for i in range(200))]
    )
    layout = LabelSpace(hierarchy, ["a/b"]).layout  # every leaf is terminal, too
    selection = SelectionOptions(0.1, False, False)
    x = torch.zeros(3, len(hierarchy))
    y = torch.zeros(3, len(hierarchy), dtype=torch.bool)
    one = torch.ones(())
    tensors = {"y": y, "m": y, "upstream": one, "loss": one, "threshold": one.double()}
    for dtype, mask, softmax, bound in (
        (torch.bfloat16, y, True, True),
        (torch.float32, None, True, True),
        (torch.float32, None, True, False),
        (torch.float32, y, False, True),
    ):
        spec = KernelSpec((len(x[0]),), 1.0, True, selection, layout, softmax, bound)
        batch = x.to(dtype)
        compile_plan(TreePlan(spec, batch, y, mask), x=batch, out=batch, **tensors)
    pair = dict.fromkeys(("x", "log_p", "log_not_p", "grad_p", "grad_not_p", "out"), x)
    compile_plan(LinkPlan(layout, x), **pair)
    compile_plan(MCPlan(layout, x, y, 1.0), x=x, y=y, upstream=one, out=x)
    print(*sorted({key[0] for key in DONE}))


if __name__ == "__main__":
    sys.exit(main())
