"""The gates, one module each, in the order a candidate meets them.

Each has ``run(trial) -> notes`` and raises :class:`~egg.evaluator.trial.trial.Refused` when the
candidate does not pass.
"""
