"""The gates, one module each, in the order a candidate meets them.

Each has ``run(exam) -> notes`` and raises :class:`~egg.evaluator.exam.Refused` when the
candidate does not pass.
"""
