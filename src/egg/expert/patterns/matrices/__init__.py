"""Small matrices in registers: factorisations and systems of a batch, with what surrounds them."""
