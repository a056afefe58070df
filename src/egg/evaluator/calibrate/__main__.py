"""``python -m egg.evaluator.calibrate [--out FILE] [--device cuda:N]``."""

import sys

from egg.evaluator.calibrate.measure import main

sys.exit(main(sys.argv[1:]))
