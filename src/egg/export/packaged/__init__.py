"""Code that goes into exported packages as it stands: it imports torch and triton only."""
