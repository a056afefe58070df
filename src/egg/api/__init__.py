"""Where the engine, its teams and the judge are joined: the doors of this package for Python programs."""
