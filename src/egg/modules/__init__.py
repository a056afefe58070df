"""A live module as a task, and a kernel file in its place: capture, printing, binding, the drop-in module."""
