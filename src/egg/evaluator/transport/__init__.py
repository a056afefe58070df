"""What travels between the judge and a candidate's process, and how.

``wire`` frames JSON messages and file descriptors, ``arena`` is the shared memory of inputs, weights and
outputs, ``exchange`` packs arguments around their tensors, ``freshen`` makes new inputs in place.
"""
