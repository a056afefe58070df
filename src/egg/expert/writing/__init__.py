"""From parts to a file: constants, kernels, constructor, forward."""
