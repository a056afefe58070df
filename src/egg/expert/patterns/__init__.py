"""One folder per pattern: how a group of operators is written as Triton kernels.

:data:`PATTERNS` is all that the rest of the team knows of them. A new pattern is a folder with an object
(:class:`egg.expert.pattern.Pattern`) and a line here.
"""

from __future__ import annotations

from egg.expert.pattern import Patterns
from egg.expert.patterns.attention.pattern import ATTENTION
from egg.expert.patterns.convolution.pattern import CONVOLUTION
from egg.expert.patterns.library.pattern import Library
from egg.expert.patterns.loops.pattern import LOOPS
from egg.expert.patterns.matrices.pattern import MATRICES
from egg.expert.patterns.product.pattern import PRODUCT
from egg.expert.patterns.recurrent.pattern import RECURRENT
from egg.expert.patterns.segments.pattern import SEGMENTS
from egg.expert.patterns.triangular.pattern import TRIANGULAR

OWN = (LOOPS, CONVOLUTION, PRODUCT, ATTENTION, RECURRENT, MATRICES, TRIANGULAR, SEGMENTS)
PATTERNS = Patterns(*OWN, Library(OWN))
