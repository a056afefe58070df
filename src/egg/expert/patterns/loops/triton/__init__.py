"""Kernels of passes over memory in Triton."""
