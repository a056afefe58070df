"""Recorded plans: one call of a kernel file as straight-line data, and the file that holds it.

The author's host code runs once, in a candidate's process (:mod:`.noting`), and what it made of that one
call signature is written as statements (:mod:`.writing`, :mod:`.spelling`). The trusted side puts them into
a file of a fixed form (:mod:`.assemble`), with the kernels of the author's text (:mod:`.kernels`) and the
constructor of the task's (:mod:`.skeleton`). Nothing of that need be right: :mod:`.verify` reads the file
and refuses whatever is not of the form, and the judge judges the file as any other.
"""
