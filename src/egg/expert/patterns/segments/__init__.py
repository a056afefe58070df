"""Rows that join others at places known only when it runs: filed under their places, gathered there."""
