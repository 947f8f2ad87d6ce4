"""LoRA: small trained matrices beside the frozen ones of a network, through peft.

    W x  becomes  W x + (alpha / r) B A x,    A (r, in), B (out, r), B = 0 before training

Hu et al. (2022), "LoRA: Low-Rank Adaptation of Large Language Models", eq. (3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hierlearn.backbones.sources import first_line, quiet
from hierlearn.errors import HierlearnError

ALL = "all-linear"
BASE = ".base_layer"  # in the name of a frozen weight that has an adapter
ADAPTER = "lora_"  # in the names of what is trained


@dataclass(frozen=True)
class Lora:
    """How to adapt a network.

    Attributes:
        rank: r.
        alpha: the scale of what is added is alpha / r; by default 2 r.
        dropout: of the inputs of A.
        targets: the names of the layers, comma-separated; by default all linear ones.
    """

    rank: int = 8
    alpha: float | None = None
    dropout: float = 0.0
    targets: str = ALL

    def __post_init__(self) -> None:
        if not is_number(self.rank) or int(self.rank) != self.rank or not 1 <= self.rank <= 4096:
            raise HierlearnError(f"lora_rank must be an integer from 1 to 4096, not {self.rank!r}")
        if self.alpha is not None and (not is_number(self.alpha) or not 0 < self.alpha < 1e6):
            raise HierlearnError(f"lora_alpha must be above 0, not {self.alpha!r}")
        if not is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise HierlearnError(f"lora_dropout must be in [0, 1), not {self.dropout!r}")
        if not isinstance(self.targets, str) or not self.targets.strip(", "):
            raise HierlearnError(
                f"lora_targets must be names of layers such as query,value, or {ALL}, not "
                f"{self.targets!r}"
            )

    def apply(self, model: Any) -> Any:
        """Add adapters to a network, which is changed; the rest of it is frozen."""
        try:
            import peft
        except ImportError as error:
            raise HierlearnError(
                f"tuning 'lora' needs peft ({error}); install it with: pip install peft"
            ) from None
        names = [name.strip() for name in self.targets.split(",") if name.strip()]
        config = peft.LoraConfig(
            r=int(self.rank),
            lora_alpha=2 * int(self.rank) if self.alpha is None else self.alpha,  # type: ignore[arg-type]
            lora_dropout=self.dropout,
            target_modules=ALL if names == [ALL] else names,
        )
        try:
            with quiet():
                adapted = peft.inject_adapter_in_model(config, model)
        except ValueError as error:
            raise HierlearnError(
                f"lora_targets {self.targets!r} do not fit this network ({first_line(error)}); use "
                f"{ALL}"
            ) from None
        for name, value in adapted.named_parameters():
            value.requires_grad_(ADAPTER in name)
        return adapted


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
