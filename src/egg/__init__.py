"""EGG: an expert-guided agent framework for GPU kernel generation."""

__version__ = "0.1.0"
