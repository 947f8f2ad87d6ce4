"""Kernels: Triton twins of hot losses. They import no stage and are optional, as Triton is."""
