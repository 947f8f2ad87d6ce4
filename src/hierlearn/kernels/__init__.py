"""Kernels: Triton versions of hot losses. They import no stage and are optional, as Triton is."""
