"""Attention, as one pass or by wide products."""
