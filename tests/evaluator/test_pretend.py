"""A worker without a GPU answers a candidate's questions as the target would."""

from __future__ import annotations

import subprocess
import sys

ASKS = """
import torch
from egg.evaluator.offline.target import resolve_target
from egg.evaluator.worker.pretend import answer_for

answer_for(resolve_target("sm_90"))
print(torch.cuda.is_available(), torch.cuda.is_current_stream_capturing())
"""


def test_a_file_that_replays_a_recording_makes_its_launches() -> None:
    """It asks first whether a recording is under way; without a driver PyTorch itself raises there."""
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"], done.stderr
