"""Whether an output is right: errors against an exact run, and the sums over tensors that this takes."""
