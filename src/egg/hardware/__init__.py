"""GPUs as data: what they have, what they can do at most, and how to tell which one is here."""
