"""The untrusted side's processes: a prewarmed forkserver, a supervisor and a sandbox per candidate.

::

    oracle (trusted) ──spawn──> forkserver (imports done, no secrets) ──fork──> supervisor ──fork──> worker
          └────────────── control socket, JSON only ──────────────────────────────────────────┘

The worker runs candidate code and may do anything; the supervisor outlives it and leaves
nothing behind. What travels from the worker to the oracle is JSON and raw tensor bytes in
memory the oracle owns: never a pickle, never a verdict.
"""
