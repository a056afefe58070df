"""Text of kernels and of host code: names, definitions, launches, scalar functions, calls of PyTorch."""
