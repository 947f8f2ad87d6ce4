"""Public datasets by name; entry points of ``hierlearn.datasets``."""
