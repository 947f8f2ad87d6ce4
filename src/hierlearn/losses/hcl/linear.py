"""LinearHCLLoss: the last linear layer and HCL together, without ever holding N x C logits.

    logits = inputs weight^T + bias,    loss = HCL(logits, targets)

Rows are processed in chunks: the logits of a chunk are computed, used and dropped, and computed
again in the backward pass (four matmuls instead of three). The selection needs the class sums of
all rows first; without a curriculum one pass over the rows gives the loss and the gradients.

Memory beyond inputs, targets, weights and their gradients: one chunk, and O(N * L + C).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from hierlearn.errors import HierlearnError
from hierlearn.kernels import hcl as kernels
from hierlearn.kernels.autograd import with_gradients
from hierlearn.kernels.plan import FLOAT
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
    from collections.abc import Iterator

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
            found: Tensor = self.loss(self.logits(inputs), targets, mask)
            return found
        kind, tensors = inputs.device.type, (inputs, self.weight, self.bias)
        learns = [
            torch.is_grad_enabled() and one is not None and one.requires_grad for one in tensors
        ]
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        given: Any = [None if one is None else one.detach() for one in tensors]
        data: Any = (*given, targets, mask)

        # Without a curriculum the weights are known, and one pass gives the gradients, too.
        sums = given[1].new_zeros(
            len(self.weight), dtype=torch.promote_types(given[1].dtype, FLOAT)
        )
        errors, share = sums.new_zeros(()), self.share(len(inputs), mask, sums)
        weights = torch.ones_like(sums) if self.loss.curriculum is None else None
        gradients = Gradients(given, learns, half)
        kept: list[Any] = []
        for rows, form in self.forms(data, half):
            some, wrong = form.sums()
            sums += some
            errors += wrong
            if weights is not None and any(learns):
                gradients.add(rows, form.gradient(weights * share))
            kept.append(form.kept)
        chosen = self.loss.weigh(sums, errors, len(inputs))
        ready = [] if weights is None else [gradients.found]
        weights = chosen if weights is None else weights
        assert weights is not None
        value: Tensor = (sums * weights).sum() * share
        if not any(learns):
            return value

        def backward(saved: Any, grads: Any, needed: Any) -> list[Tensor | None]:
            (upstream,) = grads
            if ready:  # a second pass through a retained graph makes them again
                return [None if one is None else one.mul_(upstream) for one in ready.pop()]
            *data, weights = saved
            gradients = Gradients(data[:3], needed, half)
            for rows, form in self.forms(data, half, kept):
                gradients.add(rows, form.gradient(weights * upstream))
            return gradients.found

        def plain(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            logits = self.loss.link.output(linear(x, weight, bias))
            losses = self.loss.constrained(logits, targets, mask)[0]
            return (losses.sum(dim=0) * weights).sum() * share

        saved = (*data, weights * share)
        (value,) = with_gradients((value,), tensors, backward, plain, saved)
        return value

    def share(self, rows: int, mask: Tensor | None, like: Tensor) -> float | Tensor:
        """Return 1 over what the reduction divides by."""
        if self.loss.reduction == "sum":
            return 1.0
        known = rows * len(self.weight) if mask is None else mask.sum().to(like.dtype)
        return 1 / safe_divisor(known)

    def forms(
        self, data: Any, half: torch.dtype | None, kept: Any = None
    ) -> Iterator[tuple[slice, Form]]:
        """Yield the rows of each chunk and their form, whose logits are computed here.

        Args:
            data: inputs, weight, bias, targets and mask.
            half: the precision of autocast, which is off in the backward pass.
            kept: of the forms of these chunks, made before.
        """
        inputs, weight, bias = in_precision(data[:3], half)
        targets, mask = data[3:]
        step = self.chunk
        if step is None:
            row = len(weight) * weight.element_size()
            step = CHUNK.get(inputs.device.type, CHUNK["cuda"]) // row
            step = max(1, step // 16 * 16 or step)
        for number, begin in enumerate(range(0, len(inputs), step)):
            rows = slice(begin, begin + step)
            with torch.autocast(inputs.device.type, enabled=False):
                logits = linear(inputs[rows], weight, bias)
            of_rows = targets[rows], None if mask is None else mask[rows]
            yield rows, self.form(logits, *of_rows, kept[number] if kept else None)

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
        run = loss.kernels.setdefault(spec, kernels.Kernels(spec))
        return TritonForm(rows, run, kept)

    def extra_repr(self) -> str:
        """Name the choices when the module is printed."""
        return f"features={self.features}, chunk={self.chunk}"


def in_precision(tensors: Any, half: torch.dtype | None) -> Any:
    """Return tensors as autocast would, if it is on."""
    return tensors if half is None else [None if one is None else one.to(half) for one in tensors]


class Gradients:
    """The gradients of inputs, weight and bias, added up over chunks; None where not needed."""

    def __init__(self, tensors: Any, needed: Any, half: torch.dtype | None) -> None:
        self.found = [
            torch.zeros_like(one) if one is not None and wanted else None
            for one, wanted in zip(tensors, needed, strict=True)
        ]
        self.inputs, self.weight, _ = in_precision(tensors, half)

    def add(self, rows: slice, slope: Tensor) -> None:
        """Add those of a chunk, given the (n, C) gradient of its logits."""
        inputs, weight, bias = self.found
        with torch.autocast(slope.device.type, enabled=False):
            if inputs is not None:
                inputs[rows] = slope @ self.weight
            if weight is not None and weight.dtype == slope.dtype:
                weight.addmm_(slope.t(), self.inputs[rows])
            elif weight is not None:
                weight.add_(slope.t() @ self.inputs[rows])
            if bias is not None:
                bias.add_(slope.sum(dim=0))
