"""One file (or few) per pattern: how a group of operators is written as Triton kernels.

A pattern is a function ``write(graph, group, terms) -> Part`` that raises :class:`~egg.expert.parts.Unfit`
with a sentence where it cannot. The table below is all that the rest of the team knows of them.
"""

from __future__ import annotations
