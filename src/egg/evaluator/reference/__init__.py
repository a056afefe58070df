"""The trusted side of a trial: the task's module, its questions, and answers that are more exact.

``reference`` draws questions and answers them, ``yardstick`` runs the program more exactly, ``probes`` are
calls beside the captured one, ``reserve`` keeps further draws for timed calls.
"""
