"""The built-in team: reads a program as a graph, chooses its structure, writes Triton and tunes it.

No model, no key, no network: rules over the graph, patterns that write readable kernels, and typed
moves that the judge's measurements decide on. The way from a task to a kernel file::

    capture   Task -> Graph          operators with shapes, strides and dtypes, in a few normal forms
    simplify  Graph -> Graph         algebra that holds for every input
    structure Graph -> Structure     groups of operators, one kernel (or library call) each
    patterns  Group -> Part          one group written as Triton: kernels, constants, the call
    write     Structure -> source    the file a person maintains
    team      the four roles over all of that
"""
