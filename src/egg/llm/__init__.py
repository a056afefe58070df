"""Talking to language models: one small protocol, two wire formats, one retry policy, offline prices."""
