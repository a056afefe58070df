"""Kernels of convolutions in Triton."""
