"""PyTorch's operators as they run: which of them compute, their work, and sketches of their results.

The reference and the candidate are recorded by the same code, so that their work is comparable.
"""
