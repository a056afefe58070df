"""Convolutions, transposed ones too, with what rides on their result."""
