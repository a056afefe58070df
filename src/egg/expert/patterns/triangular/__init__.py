"""Systems of equations with a triangular matrix."""
