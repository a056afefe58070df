"""Tools for tensors that know nothing of a judge: large ones in pieces, and light dispatch modes."""
