"""The untrusted side's processes: a prewarmed zygote, a warden and a sandbox per candidate, the wire between.

::

    oracle (trusted) ──spawn──> zygote (imports done, no secrets) ──fork──> warden ──fork──> worker
          └────────────── control socket, JSON only ──────────────────────────────────────────┘

The worker runs candidate code and may do anything; the warden outlives it and leaves
nothing behind. What travels from the worker to the oracle is JSON and raw tensor bytes in
memory the oracle owns: never a pickle, never a verdict.
"""
