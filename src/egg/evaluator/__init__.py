"""The judge. Needs the standard library, torch and triton, nothing else.

Rooms, each of which imports only those below it:

- ``judge``: questions, oracles, backends, pools of oracles, batches and signatures;
- ``gates``: one module for each gate;
- ``trial``: one evaluation in progress: buffers, the connection to the candidate, checks, refusals;
- ``reference`` (the trusted answers), ``profiling``, ``calibrate``;
- ``process``: forkserver, supervisors, sandbox, locks of a shared GPU;
- ``worker``: the confined process that runs a candidate;
- ``transport``: the protocol between the two, strict reading, shared memory, the wire;
- ``compare``, ``interpreter``, ``offline`` (compiles without a GPU), ``operators``, ``restrict``, ``timing``;
- ``task``: facts of a task;
- ``static`` (reading a kernel file), ``work`` (counting in Triton's IR), ``tensors``.
"""
