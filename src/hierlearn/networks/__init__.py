"""Stage 7: networks that turn inputs into (N, C) logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.networks.mlp import MLP, Linear
from hierlearn.networks.sparse import SparseRows
from hierlearn.networks.token_bag import TokenBag

if TYPE_CHECKING:
    from hierlearn.networks.network import Network

NETWORKS: dict[str, type[Network]] = {"mlp": MLP, "token-bag": TokenBag, "linear": Linear}

__all__ = ["MLP", "NETWORKS", "Linear", "SparseRows", "TokenBag"]
