"""The forms of HCL: class sums of a batch, and the gradient of what they weigh.

    PlainForm    link, base and constraint as they stand, by autograd: the definition
    NumbaForm    bce, by the CPU kernels of kernels/hcl_numba.py
    TritonForm   bce by levels, by the GPU kernels of kernels/hcl_triton.py

Each gives ``sums() -> (L, e_h)`` and ``gradient(weights)``; the curriculum turns the former into
the latter's weights. ``LinearHCLLoss`` runs any of them on chunks of rows, ``HCLLoss`` the CPU
kernels; on a GPU it lets the kernels select the classes too (``triton_loss``), on trees as well.
Which form a loss takes, kernels/choose.py says. All return the same; tests compare them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from hierlearn.kernels import choose, cpu
from hierlearn.kernels import hcl as kernels
from hierlearn.kernels.autograd import with_gradient
from hierlearn.kernels.hcl_plan import KernelSpec, SelectionOptions
from hierlearn.kernels.plan import scalar_one
from hierlearn.links import HeadOutput, link_kind
from hierlearn.losses.bases import BCE
from hierlearn.losses.loss import safe_divisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hierlearn.links import Link
    from hierlearn.losses.hcl.loss import HCLLoss

    # The loss of one network: (loss, output, targets, mask, which member it is).
    FastLoss = Callable[[HCLLoss, HeadOutput, Tensor, Tensor | None, int | None], Tensor]

FEW = 1 << 18  # logits of all members up to which kernel launches cost more than memory


def key_of(loss: HCLLoss, link: Link | None) -> choose.Key:
    """Return what the table of kernels is asked for."""
    return "hcl of bce" if type(loss.base) is BCE else "", link_kind(link), loss.scope


def fast_loss(loss: HCLLoss, output: HeadOutput, weight: Tensor | None) -> FastLoss | None:
    """Return what computes the loss of an output by kernels; None where none do."""
    logits = output.logits
    if logits is None or weight is not None or loss.reduction == "none":
        return None
    if choose.takes_plain(logits):
        return None
    key = key_of(loss, output.link)
    if choose.gpu_kernels(key, logits, loss.label_space) is not None:
        # Of few logits of many members the number of launches is what costs.
        few = output.members is not None and logits.numel() <= FEW
        return triton_loss if not few and kernels_work(key, logits.device) else None
    if choose.cpu_kernels(key, output.float_logits, loss.label_space) is not None:
        return numba_loss
    return None


# ---------------------------------------- forms


class Form(Protocol):
    """The rows of a batch under a loss.

    Attributes:
        kept: what a form of the same rows, made again, can use of this one.
    """

    kept: Any

    def sums(self) -> tuple[Tensor, Tensor]:
        """Return (C,) the summed l_h of each class, and e_h."""
        ...

    def gradient(self, weights: Tensor) -> Tensor:
        """Return (N, C) the gradient of the class sums times (C,) weights, for the logits."""
        ...


class Rows(NamedTuple):
    """A batch of logits under a link."""

    loss: HCLLoss
    link: Link
    logits: Tensor  # (N, C)
    targets: Tensor  # (N, C)
    mask: Tensor | None  # (N, C)


class PlainForm:
    """Link, base and constraint one after another, by autograd."""

    kept = None

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return l_h and the errors that e_h sums."""
        loss, link, _, targets, mask = self.rows
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return loss.constrained(HeadOutput.from_logits(wide, link), targets, mask)

    def sums(self) -> tuple[Tensor, Tensor]:
        """Return the class sums and e_h."""
        with torch.no_grad():
            losses, errors = self.losses(self.rows.logits)
        return losses.sum(dim=0), errors.sum()

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the gradient."""
        with torch.enable_grad():
            x = self.rows.logits.detach().requires_grad_()
            losses = self.losses(x)[0]
            total = (losses * weights.to(losses.dtype)).sum()
        return torch.autograd.grad(total, x)[0]


class NumbaForm:
    """The CPU kernels, for bce; logits that are not finite are left to the plain form."""

    def __init__(self, rows: Rows, kept: bool | None = None) -> None:
        loss, link, logits, targets, mask = rows
        self.rows, self.kept = rows, kept
        self.scale: float = loss.base.scale  # type: ignore[attr-defined]
        x = logits.float().contiguous()
        softmax = link_kind(link) == "softmax"
        batch = (x, targets, mask)
        layout = loss.label_space.layout if softmax or loss.scope == "ancestors" else None
        self.batch = cpu.HCLRows(layout, softmax, loss.scope, loss.level_sizes, batch)

    def sums(self) -> tuple[Tensor, Tensor]:
        """Return the class sums and e_h."""
        found = self.batch.sums()
        self.kept = found is not None
        if found is None:
            return PlainForm(self.rows).sums()
        return found if self.scale == 1 else (found[0] * self.scale, found[1])

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the gradient."""
        if not self.kept:
            return PlainForm(self.rows).gradient(weights)
        weights = weights if self.scale == 1 else weights * self.scale
        return self.batch.gradient(weights).to(self.rows.logits.dtype)


class TritonForm:
    """The GPU kernels by levels; the gradient is written to the memory of the logits."""

    def __init__(self, rows: Rows, run: kernels.Kernels, kept: Any = None) -> None:
        self.batch = run.prepare(rows.logits, rows.targets, rows.mask)
        self.kept = kept

    def sums(self) -> tuple[Tensor, Tensor]:
        """Return the class sums and e_h."""
        x, y, m, plan = self.batch
        found = kernels.Workspace(plan, kernels.sweep_down(plan, x, y, m))
        self.kept = {name: found.array(name).clone() for name in ("peaks", "places")}
        return found.array("sums"), found.errors

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the gradient."""
        x, y, m, plan = self.batch
        one = scalar_one(x.device)
        return kernels.sweep_up(plan, x, y, m, None, one, x, weights=weights.float(), **self.kept)


def numba_loss(
    loss: HCLLoss, output: HeadOutput, targets: Tensor, mask: Tensor | None, member: int | None
) -> Tensor:
    """Return the loss of one network by the CPU kernels."""
    assert output.link is not None
    logits = output.float_logits
    rows = Rows(loss, output.link, logits.detach(), targets, mask)
    form = NumbaForm(rows)
    sums, errors = form.sums()
    share: float | Tensor = 1.0  # 1 over what the reduction divides by
    if loss.reduction != "sum":
        known = logits.numel() if mask is None else mask.sum().to(logits.dtype)
        share = 1 / safe_divisor(known)
    weights = loss.weigh(sums, errors, len(logits), member)
    weights = torch.ones_like(sums) * share if weights is None else weights * share
    total = (sums * weights).sum()  # a matmul would have autocast's precision
    if not (torch.is_grad_enabled() and logits.requires_grad):
        return total

    def plain(x: Tensor) -> Tensor:
        return (PlainForm(rows).losses(x)[0].sum(dim=0) * weights).sum()

    run = partial(form.gradient, weights)
    return with_gradient(total, logits, run(), run, plain)


# ---------------------------------------- Triton


class KernelRecord(NamedTuple):
    """What the kernels selected, unread: most records are never used."""

    plan: Any
    block: Tensor


def triton_loss(
    loss: HCLLoss, output: HeadOutput, targets: Tensor, mask: Tensor | None, member: int | None
) -> Tensor:
    """Return the loss of one network by the GPU kernels; half precision is read as it is."""
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
    spec = spec_of(loss, link, selects)
    run = loss.kernels.get(spec)
    if run is None:
        run = loss.kernels[spec] = kernels.Kernels(spec)

    def again(x: Tensor, targets: Tensor, mask: Tensor | None, weights: Tensor) -> Tensor:
        losses = loss.constrained(HeadOutput.from_logits(x, link), targets, mask)[0]
        return loss.reduce(losses * weights.to(losses.dtype), targets, mask, None)

    def record(plan: Any, block: Tensor) -> None:
        loss.record(KernelRecord(plan, plan.kept(block)), member)

    if selects:
        return run(logits, targets, mask, threshold=limit, on_result=record, differentiable=again)
    rows = len(logits)
    return run(
        logits,
        targets,
        mask,
        weigh=lambda sums, errors: loss.weigh(sums, errors, rows, member),
        differentiable=again,
    )


def spec_of(loss: HCLLoss, link: Link, selects: bool) -> KernelSpec:
    """Return what the kernels compute for a loss, with or without the selection."""
    base: Any = loss.base
    selection = None
    if selects:
        fixed = loss.threshold is not None
        selection = SelectionOptions(loss.floor, loss.normalize == "mean", fixed)
    spec = (loss.level_sizes, base.scale, loss.reduction == "mean", selection)
    if not choose.TABLE[key_of(loss, link)].tree:
        return KernelSpec(*spec)
    softmax, bound = link_kind(link) == "softmax", loss.scope == "ancestors"
    return KernelSpec(*spec, link.label_space.layout, softmax, bound)


def statistics_of(record: Any) -> tuple[Any, ...]:
    """Return selected, class losses, errors, rows and weights of a record."""
    if not isinstance(record, KernelRecord):
        return tuple(record)
    found = kernels.Workspace(*record)
    selected, losses, weights = (found.array(name) for name in ("selected", "sums", "weights"))
    return selected, losses, found.errors, found.plan.rows, weights


def kernels_work(key: choose.Key, device: torch.device) -> bool:
    """Whether the GPU kernels of a link and a scope work on a device."""
    _, link, scope = key
    name = f"HCL with link {link!r} and scope {scope!r}"
    return choose.passes(name, device, partial(try_kernels, link, scope))


def try_kernels(link: Any, scope: Any, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what the kernels compute for a link and a scope, with what they must."""
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.losses.hcl.loss import HCLLoss

    hierarchy = Hierarchy.from_parents(choose.example_parents())
    targets = hierarchy.encode(choose.example_classes(), numbers=True).to(device)
    # Selecting classes among several processes would wait for the others.
    options: dict[str, Any] = {"curriculum": None} if is_distributed() else {}
    by_kernels, plain = (
        HCLLoss(hierarchy, link=link, scope=scope, **options).to(device) for _ in range(2)
    )

    def compute(x: Tensor) -> list[Tensor]:
        output = by_kernels.read(x)
        return [triton_loss(by_kernels, output, targets, None, None)[None]]

    yield from choose.compare_functions(
        compute,
        lambda x: [plain.plain(plain.read(x), targets, None, None)[None]],
        choose.example_inputs(device),
    )


def is_distributed() -> bool:
    """Whether several processes train together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
