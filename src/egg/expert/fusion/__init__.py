"""Which operators share a kernel, and which kernels share their text."""
