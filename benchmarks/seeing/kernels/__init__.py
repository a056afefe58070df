"""Kernels in which nothing is special but their parameters: the variants of the prediction."""
