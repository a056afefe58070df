"""Measuring time: the stopwatch, the programs a candidate is timed against, and statistics over rounds."""
