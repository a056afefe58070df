"""Kernels of recurrent layers in Triton."""
