"""Judges on the machines of a Ray cluster.

::

    RayPool (the caller's process) ──socket, JSON──> bridge (Ray's driver) ──Ray──> OracleActor, one per GPU

The bridge is a process of its own because Ray takes over the process it lives in: it installs
signal handlers, writes to its terminal, may wait for minutes for an address where nothing
listens, and ends the process where the head of the cluster is lost. What the nodes need is
Ray, PyTorch and Triton; this package travels with the job.
"""
