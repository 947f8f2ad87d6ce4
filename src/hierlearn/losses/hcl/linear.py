"""LinearHCLLoss: the last linear layer and HCL together, without ever holding N x C logits.

    logits = inputs weight^T + bias,    loss = HCL(logits, targets)

Rows are processed in chunks: the logits of a chunk are computed, used and dropped, and computed
again in the backward pass (four matmuls instead of three). The selection needs the class sums of
all rows first; without a curriculum one pass over the rows gives the loss and the gradients.

Memory beyond inputs, targets, weights and their gradients: one chunk, and O(N * L + C).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from hierlearn.errors import HierlearnError
from hierlearn.kernels import hcl as kernels
from hierlearn.links import HeadOutput
from hierlearn.losses.checks import check_targets, in_transform
from hierlearn.losses.hcl.forms import (
    Form,
    NumbaForm,
    PlainForm,
    Rows,
    TritonForm,
    fast_loss,
    numba_loss,
    spec_of,
    triton_loss,
)
from hierlearn.losses.hcl.loss import HCLLoss
from hierlearn.losses.loss import safe_divisor

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy

CHUNK = {"cuda": 1 << 30, "cpu": 1 << 25}  # bytes of the logits of a chunk


class LinearHCLLoss(nn.Linear):
    """The last linear layer of a network and its HCL loss, in chunks of rows.

    Args:
        hierarchy: the taxonomy.
        features: the width of the inputs.
        bias: whether the layer has one.
        chunk: the rows of a chunk; by default about 1 GiB of logits on a GPU and 32 MiB elsewhere.
        options: the options of HCLLoss; its reduction is "mean" or "sum".

    Attributes:
        weight: (C, features).
        bias: (C,), or None.
        loss: the HCLLoss, with ``last``, ``end_epoch`` and ``set_progress``.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        features: int,
        *,
        bias: bool = True,
        chunk: int | None = None,
        **options: Any,
    ) -> None:
        if features < 1:
            raise HierlearnError(f"features must be at least 1, not {features}")
        super().__init__(features, len(hierarchy), bias=bias)
        if chunk is not None and chunk < 1:
            raise HierlearnError(f"chunk must be at least 1 row, not {chunk}")
        self.loss = HCLLoss(hierarchy, **options)
        if self.loss.reduction == "none":
            raise HierlearnError(
                "LinearHCLLoss never has all entries at once; pass reduction 'mean' or 'sum'"
            )
        self.hierarchy, self.features, self.chunk = hierarchy, features, chunk
        self.kernels: kernels.Kernels | None = None  # made at first use

    def logits(self, inputs: Tensor) -> Tensor:
        """Return all logits, (N, C), for predicting."""
        return linear(inputs, self.weight, self.bias)

    def forward(  # type: ignore[override]
        self, inputs: Tensor, targets: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            inputs: (N, features).
            targets: (N, C) closed multi-hot of 0 and 1.
            mask: (N, C) bool, which targets are known; by default all.
        """
        if inputs.dim() != 2 or inputs.shape[1] != self.features:
            raise HierlearnError(f"inputs {tuple(inputs.shape)} must be (N, {self.features})")
        shape = torch.empty(len(inputs), len(self.hierarchy), device="meta")  # of the logits
        check_targets(HeadOutput.from_logits(shape, self.loss.link), targets, mask, None)
        self.loss.check_values(targets, mask)
        if in_transform():
            plain: Tensor = self.loss(self.logits(inputs), targets, mask)
            return plain
        learns = torch.is_grad_enabled() and any(
            one is not None and one.requires_grad for one in (inputs, self.weight, self.bias)
        )
        kind = inputs.device.type
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        call = Call(self, targets, mask, learns, half)
        found: Tensor = _LinearHCL.apply(call, inputs, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return found

    def form(self, logits: Tensor, targets: Tensor, mask: Tensor | None, kept: Any = None) -> Form:
        """Return what computes the sums and gradients of a chunk."""
        loss = self.loss
        rows = Rows(loss, loss.link, logits, targets, mask)
        fast = fast_loss(loss, HeadOutput.from_logits(logits, loss.link), None)
        if fast is numba_loss:
            return NumbaForm(rows, kept)
        if fast is not triton_loss:
            return PlainForm(rows)
        spec = replace(spec_of(loss, loss.link, False), mean=False)
        if spec.tree is not None:  # its sweeps up need what the sweeps down left
            return PlainForm(rows)
        if self.kernels is None or self.kernels.spec != spec:
            self.kernels = kernels.Kernels(spec)
        return TritonForm(rows, self.kernels, kept)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kernels": None}

    def extra_repr(self) -> str:
        """Name the choices when the module is printed."""
        return f"features={self.features}, chunk={self.chunk}"


class Call(NamedTuple):
    """The arguments of a call beside the tensors with gradients."""

    layer: LinearHCLLoss
    targets: Tensor
    mask: Tensor | None
    learns: bool  # computed by the caller: inside the function gradients are off
    half: torch.dtype | None  # of autocast, which is off in the backward pass


class Work:
    """One batch: its chunks, its matmuls, its gradients."""

    def __init__(
        self, call: Call, inputs: Tensor, weight: Tensor, bias: Tensor | None, needs: Any
    ) -> None:
        self.call, self.needs = call, needs
        self.types = (inputs.dtype, weight.dtype, weight.dtype)  # of the gradients
        if call.half is not None:
            inputs, weight = inputs.to(call.half), weight.to(call.half)
            bias = None if bias is None else bias.to(call.half)
        self.inputs, self.weight, self.bias = inputs, weight, bias
        self.count, self.classes = len(inputs), len(weight)
        self.dtype = torch.promote_types(weight.dtype, torch.float32)  # of sums

    def chunks(self) -> list[slice]:
        """Return the rows of each chunk."""
        step = self.call.layer.chunk
        if step is None:
            row = self.classes * self.weight.element_size()
            step = CHUNK.get(self.inputs.device.type, CHUNK["cuda"]) // row
            step = max(1, step // 16 * 16 or step)
        return [slice(begin, begin + step) for begin in range(0, self.count, step)]

    def share(self) -> float | Tensor:
        """Return 1 over what the reduction divides by."""
        if self.call.layer.loss.reduction == "sum":
            return 1.0
        mask = self.call.mask
        known = self.count * self.classes if mask is None else mask.sum().to(self.dtype)
        return 1 / safe_divisor(known)

    def form(self, rows: slice, kept: Any = None) -> Form:
        """Return the form of a chunk, whose logits are computed here."""
        with torch.autocast(self.inputs.device.type, enabled=False):
            logits = linear(self.inputs[rows], self.weight, self.bias)
        _, targets, mask, *_ = self.call
        return self.call.layer.form(
            logits, targets[rows], None if mask is None else mask[rows], kept
        )

    def gradients(self) -> list[Tensor | None]:
        """Return zeros for the gradients that are needed: inputs, weight, bias."""
        like = (self.inputs, self.weight, self.bias)
        return [
            None if one is None or not wanted else torch.zeros_like(one, dtype=dtype)
            for one, wanted, dtype in zip(like, self.needs, self.types, strict=True)
        ]

    def learn(self, found: list[Tensor | None], rows: slice, form: Form, weights: Tensor) -> None:
        """Add the gradients of a chunk."""
        slope = form.gradient(weights)  # (n, C)
        inputs, weight, bias = found
        with torch.autocast(self.inputs.device.type, enabled=False):
            if inputs is not None:
                inputs[rows] = slope @ self.weight
            if weight is not None and weight.dtype == slope.dtype:
                weight.addmm_(slope.t(), self.inputs[rows])
            elif weight is not None:
                weight.add_(slope.t() @ self.inputs[rows])
            if bias is not None:
                bias.add_(slope.sum(dim=0))


class _LinearHCL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, call: Call, inputs: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        layer, needs = call.layer, ctx.needs_input_grad[1:]
        work = Work(call, inputs, weight, bias, needs)
        share = work.share()
        sums = torch.zeros(work.classes, dtype=work.dtype, device=weight.device)
        weights = torch.ones_like(sums) if layer.loss.curriculum is None else None
        gradients = work.gradients() if call.learns and weights is not None else None
        errors = sums.new_zeros(())
        kept: list[Any] = []
        for rows in work.chunks():
            form = work.form(rows)
            some, wrong = form.sums()
            sums += some
            errors += wrong
            if gradients is not None and weights is not None:
                work.learn(gradients, rows, form, weights * share)
            if call.learns:
                kept.append(form.kept)
        chosen = layer.loss.weigh(sums, errors, work.count)
        weights = chosen if weights is None else weights
        assert weights is not None
        if call.learns:
            ctx.save_for_backward(inputs, weight, bias, call.targets, call.mask, weights * share)
            ctx.call, ctx.kept, ctx.gradients = call, kept, gradients
        return (sums * weights).sum() * share

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is not None:  # a second pass through a retained graph makes them again
            return None, *[None if one is None else one.mul_(upstream) for one in gradients]
        inputs, weight, bias, targets, mask, weights = ctx.saved_tensors
        call = ctx.call._replace(targets=targets, mask=mask)
        work = Work(call, inputs, weight, bias, ctx.needs_input_grad[1:])
        gradients = work.gradients()
        for rows, kept in zip(work.chunks(), ctx.kept, strict=True):
            work.learn(gradients, rows, work.form(rows, kept), weights * upstream)
        return None, *gradients
