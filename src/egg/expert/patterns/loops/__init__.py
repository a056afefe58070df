"""Memory-bound work: pointwise, reductions, norms, scans, pools, losses."""
