"""What a GPU really gives: bandwidths, rates and the cost of a launch, measured with our own kernels."""
