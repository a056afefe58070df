"""Many tasks, each a run of the engine with a row at its end; begin at :mod:`egg.api.benching.bench`."""
