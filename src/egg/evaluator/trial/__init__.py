"""One evaluation in progress: the task's reference, the candidate's process, and the memory between them.

``trial`` holds both sides, ``levels`` says what an evaluation spends, ``refused`` ends one, ``watch`` holds
every checked call to the same rules, ``deferred`` checks answers after the clock has stopped.
"""
