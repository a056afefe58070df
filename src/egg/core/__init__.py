"""The nouns every floor speaks: tasks, candidates, policies, evaluations, errors.

Standard library only, no import side effects: this floor must import on a bare GPU
machine as well as on a laptop.
"""
