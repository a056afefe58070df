"""Kernels of triangular systems in Triton."""
