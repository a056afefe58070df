"""Kernels of attention in Triton."""
