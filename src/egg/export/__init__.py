"""Handing results on: kernels as operators, as a repository for the Hub, claims that others can check."""
