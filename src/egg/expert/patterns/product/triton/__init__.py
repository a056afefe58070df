"""Kernels of products in Triton."""
