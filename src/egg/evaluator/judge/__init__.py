"""The judge: a question in, an evaluation out.

``oracle`` is the process that judges and the handle on it; ``judge`` leads a candidate through the gates of
a backend (``backends``), ``reduction`` chooses the size that is interpreted, ``answers`` checks what an
oracle returns, ``pool`` and ``batch`` answer many questions over all devices, ``signing`` marks results,
``intact`` sees that the task's code left the judge as it was, ``needs`` predicts the memory of a question.
"""
