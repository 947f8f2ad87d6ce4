"""Stage 7: networks that turn inputs into (N, C) logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.models.mlp import MLP, Linear
from hierlearn.models.sparse import SparseRows
from hierlearn.models.token_bag import TokenBag

if TYPE_CHECKING:
    from hierlearn.models.network import Network

MODELS: dict[str, type[Network]] = {"mlp": MLP, "token-bag": TokenBag, "linear": Linear}

__all__ = ["MLP", "MODELS", "Linear", "SparseRows", "TokenBag"]
