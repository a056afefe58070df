"""The kernels' bodies in Triton."""
