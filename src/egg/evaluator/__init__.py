"""The judge. Needs the standard library, torch and triton, nothing else."""
