"""Triton, the language that kernels are written in: how it spells definitions, launches and scalar functions.

The bodies of a pattern's kernels are in a folder of the same name beside the pattern.
"""
