"""The networks of one encoding for any head, whose inputs take noise."""

from hierlearn.networks import NETWORKS

WITHOUT = (
    *("cnn", "embeddings", "hmcn-f", "hmcn-r", "hmc-lmlp", "early-heads"),
    *("tsle", "trees", "kernel", "estimator"),
)
HIDDEN = [name for name in NETWORKS if name not in WITHOUT]
