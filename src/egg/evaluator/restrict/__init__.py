"""Restricted execution: a kernel file runs exactly as it was read, with guards where names are computed.

The static gate judges the syntax tree of a string. :mod:`.execute` compiles the tree of the same string: no
file is decoded a second time, so no coding cookie, byte-order mark or changed file makes another program of
it. Reading cannot follow every value, so four things are decided on objects while the file runs:

- :mod:`.guards`: built-ins. ``getattr``, ``setattr``, ``hasattr`` and ``type`` apply the rule on attribute
  names to the name they are given; what reads code, frames, files or namespaces is absent.
- :mod:`.instrument`: attribute access. A literal, public name on an unknown object stays native unless some
  loaded module has a module or a refused function of that name; then, and for every assignment to an
  attribute, a guard looks at the object.
- :mod:`.modules`: imports. PyTorch's and Triton's modules are the real ones; those of the standard library
  are copies that hold the allowed names and nothing else.
- :mod:`.classes`: class statements. Bases and special methods are judged on the class that was built.

:mod:`.integrity` is the second line: it compares the loaded modules and classes with what they were before,
and :mod:`.live` objects of this package with their classes.
"""

from __future__ import annotations
