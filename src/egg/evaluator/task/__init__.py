"""Facts of a task: its program and inputs, other sizes and distributions, its work, and an audit of the task.

``program`` builds the module and draws inputs; ``dimensions``, ``knobs`` and ``rescale`` find other sizes;
``recorder``, ``costs``, ``traits`` and ``workload`` count what it does; ``audit`` tries null kernels on it.
"""
