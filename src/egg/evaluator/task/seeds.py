"""Seeds that both sides know: for building a module, and for forwards that answer no question."""

BUILD_SEED = 42
"""Parameters are built after this seed on both sides, as KernelBench does; it is no secret."""
FORWARD_SEED = 1234
"""Set before forwards that answer no question; each question has a secret seed of its own."""
