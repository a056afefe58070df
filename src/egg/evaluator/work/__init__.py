"""What a launch asks of a GPU, counted in Triton's IR with the launch's actual arguments.

``count`` is the door; ``ttir`` reads the text, ``program`` follows one program through it with
``tiles``, ``values`` and ``carried``, ``access`` and ``addresses`` say which bytes are touched,
``costs`` what an operation takes, ``sampling`` lets few programs and few trips stand for all.
"""
