"""From a PyTorch program to a graph in normal form, with named sizes."""
