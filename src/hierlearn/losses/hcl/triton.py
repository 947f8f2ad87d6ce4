"""HCL by the Triton kernels of ``kernels/hcl``: what they take, and the call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from hierlearn.kernels import hcl as kernels
from hierlearn.kernels import trial
from hierlearn.links import HeadOutput, SigmoidLink, SoftmaxLink
from hierlearn.losses.bases import BCE, Focal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hierlearn.links import Link
    from hierlearn.losses.hcl.batch import Batch
    from hierlearn.losses.hcl.loss import HCLLoss


class CachedKernels(NamedTuple):
    """The kernels of a loss, made at their first use.

    Attributes:
        options: the options of the loss that they were made for.
        selects: whether they select the classes too.
        run: the kernels with the plans of the shapes that they have met.
    """

    options: tuple[Any, ...]
    selects: bool
    run: kernels.Kernels


class KernelRecord(NamedTuple):
    """What the kernels selected, unread: most records are never used."""

    plan: Any
    block: Tensor


def unsupported_options(loss: HCLLoss, link: Link | None = None) -> str | None:
    """Return which option of a loss the kernels do not cover for outputs of a link, or None."""
    link = loss.link if link is None else link
    kind = type(link)
    if kind not in (SigmoidLink, SoftmaxLink):
        return f"link {kind.__name__}, but 'sigmoid' and 'softmax' only"
    if loss.reduction == "none":
        return "reduction 'none', but 'mean' and 'sum' only"
    if kind is SoftmaxLink and loss.scope == "levels":
        return "link 'softmax' with scope 'levels', but 'ancestors' and None only"
    if not uses_tree(loss, link):
        if not isinstance(loss.base, (BCE, Focal)):
            return f"base {loss.base!r}, but 'bce', 'bce2' and 'focal' only"
        return None
    if not isinstance(loss.base, BCE):
        return f"base {loss.base!r} with this link or scope, but 'bce' and 'bce2' only"
    if link.label_space.layout is None:
        return "this link or scope on a DAG or a tree of more than 64 levels"
    return None


def uses_tree(loss: HCLLoss, link: Link) -> bool:
    """Whether the loss goes along the edges of the tree, not only from level to level."""
    return type(link) is SoftmaxLink or loss.scope == "ancestors"


def unsupported_output(loss: HCLLoss, output: HeadOutput, weight: Tensor | None) -> str | None:
    """Return what of an output the kernels do not take, or None."""
    logits = output.logits
    if torch.compiler.is_compiling():
        return "logits inside torch.compile"
    if logits is None or output.link is None:
        return f"{output!r}, but logits with their link only"
    if weight is not None:
        return "weights of rows"
    if logits.dtype not in kernels.LOGITS:
        return f"logits of {logits.dtype}, but of float32, bfloat16 and float16 only"
    if not kernels.has_triton():
        return "a machine without Triton; install triton"
    if not (logits.is_cuda or kernels.interpreted()):
        return f"logits on {logits.device}, but on a GPU only"
    return unsupported_options(loss, output.link)


def kernels_work(loss: HCLLoss, output: HeadOutput) -> bool:
    """Whether the kernels of the link and the scope of a loss work on the device of an output."""
    assert output.logits is not None
    link = "softmax" if type(output.link) is SoftmaxLink else "sigmoid"
    name = f"HCL with link {link!r} and scope {loss.scope!r}"
    return trial.passes(name, output.logits.device, partial(try_kernels, link, loss.scope))


def try_kernels(link: str, scope: Any, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what the kernels compute for a link and a scope, with what they must."""
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.losses.hcl.loss import HCLLoss

    hierarchy = Hierarchy.from_parents(trial.example_parents())
    targets = hierarchy.encode(trial.example_classes(), numbers=True).to(device)
    # Selecting classes among several processes would wait for the others.
    options: dict[str, Any] = {"curriculum": None} if is_distributed() else {}
    by_kernels, plain = (
        HCLLoss(hierarchy, link=link, scope=scope, fused=fused, **options).to(device)
        for fused in (True, False)
    )
    yield from trial.compare_functions(
        lambda x: [by_kernels(x, targets)[None]],
        lambda x: [plain(x, targets)[None]],
        trial.example_inputs(device),
    )


def options_of(loss: HCLLoss, link: Any) -> tuple[Any, ...]:
    """Return what the kernels are made for."""
    fixed = loss.threshold is not None
    kind = type(link)
    space = link.label_space.layout if kind is SoftmaxLink else None
    return loss.base, loss.scope, loss.floor, loss.normalize, loss.reduction, fixed, kind, space


def base_of(loss: HCLLoss) -> kernels.BaseOptions:
    """Return the base of a loss as the kernels take it."""
    base: Any = loss.base
    if isinstance(base, BCE):
        return kernels.BaseOptions(scale=base.scale)
    positive, negative = (1.0, 1.0) if base.alpha is None else (base.alpha, 1 - base.alpha)
    return kernels.BaseOptions(1.0, True, positive, negative, base.gamma)


def spec_of(loss: HCLLoss, link: Link, *, selects: bool) -> kernels.KernelSpec:
    """Return what the kernels compute for a loss, with or without the selection."""
    selection = None
    if selects:
        fixed = loss.threshold is not None
        selection = kernels.SelectionOptions(loss.floor, loss.normalize == "mean", fixed)
    spec = (loss.level_sizes, base_of(loss), loss.reduction == "mean", selection)
    if not uses_tree(loss, link):
        return kernels.KernelSpec(*spec)
    softmax, bound = type(link) is SoftmaxLink, loss.scope == "ancestors"
    return kernels.KernelSpec(*spec, link.label_space.layout, softmax, bound)


def replay(
    loss: HCLLoss, output: HeadOutput | Tensor, targets: Tensor, mask: Tensor | None
) -> Tensor | None:
    """Return the loss of a batch whose shapes were checked in an earlier call, else None."""
    made = loss.kernels
    if made is None or not made.selects or loss.threshold is not None or loss.validate:
        return None
    if torch.compiler.is_compiling() or is_distributed():
        return None
    logits: Any = output
    link: Any = loss.link
    if isinstance(output, HeadOutput):
        logits, link = output.logits, output.link
        if logits is None or link is None:
            return None
    if made.options != options_of(loss, link):
        return None
    if logits.dim() != 2 or torch._C._are_functorch_transforms_active():
        return None
    plan = made.run.plans.get(kernels.key_of(logits, targets, mask))
    if plan is None:
        return None
    record, again = recorder(loss, None), differentiable(loss, link)
    return kernels.step(plan, logits, targets, mask, None, record, None, again)


def recorder(loss: HCLLoss, member: int | None) -> Any:
    """Return what keeps the selection of the kernels in a loss."""
    return lambda plan, block: loss.record(KernelRecord(plan, plan.kept(block)), member)


def differentiable(loss: HCLLoss, link: Link) -> Any:
    """Return the loss by plain operations, for a gradient that is differentiated again."""

    def total(logits: Tensor, targets: Tensor, mask: Tensor | None, weights: Tensor) -> Tensor:
        output = HeadOutput.from_logits(logits, link)
        losses = loss.constrained(output, targets, mask)[0]
        return loss.reduce(losses * weights.to(losses.dtype), targets, mask, None)

    return total


def statistics_of(record: Any) -> tuple[Any, ...]:
    """Return selected, class losses, errors, rows and weights of a record."""
    if not isinstance(record, KernelRecord):
        return tuple(record)
    found = kernels.Workspace(*record)
    selected, losses, weights = (found.array(name) for name in ("selected", "sums", "weights"))
    return selected, losses, found.errors, found.plan.rows, weights


class TritonBackend:
    """The kernels, for logits on a GPU."""

    takes_members: ClassVar[bool] = False

    def loss(self, loss: HCLLoss, batch: Batch) -> Tensor:
        """Return the loss of a batch of at least one row; half precision is read as it is."""
        output, targets, mask, _, member = batch
        assert output.logits is not None
        assert output.link is not None
        logits, link = output.logits, output.link
        limit = None if loss.threshold is None else loss.fixed_threshold
        selects = (
            loss.curriculum == "batch"
            and loss.normalize != "losses"  # which the kernels leave to ``weigh``
            and not is_distributed()
            and (limit is None or limit.device == logits.device)
        )
        made = loss.kernels
        options = options_of(loss, link)
        if made is None or made.selects is not selects or made.options != options:
            spec = spec_of(loss, link, selects=selects)
            made = CachedKernels(options, selects, kernels.Kernels(spec))
            loss.__dict__["kernels"] = made
        if selects:
            record = recorder(loss, member)
            return made.run(
                logits,
                targets,
                mask,
                threshold=limit,
                on_result=record,
                differentiable=differentiable(loss, link),
            )
        rows = len(logits)
        return made.run(
            logits,
            targets,
            mask,
            weigh=lambda sums, errors: loss.weigh(sums, errors, rows, member),
            differentiable=differentiable(loss, link),
        )


def is_distributed() -> bool:
    """Whether several processes train together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
