"""Many tasks at once: suites to run, scores that count what failed, files that other harnesses read."""
