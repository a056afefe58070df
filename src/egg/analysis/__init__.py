"""Reading what was seen: the time a kernel should take, what holds it back, what fusion could save.

Pure functions from facts, resources and profiles to judgements; nothing here runs anything.
"""
