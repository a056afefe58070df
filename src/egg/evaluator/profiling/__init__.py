"""Seeing what a program does: counters, kernel times, the compiler's word, as far as the machine allows.

:func:`~egg.evaluator.profiling.ladder.profile` is the way in. It starts the program in a confined
process (:mod:`egg.evaluator.profiling.profiled`), once for its times and once under Nsight Compute, and
falls back by itself where either is not to be had.
"""
