"""Kernels of segments in Triton."""
