"""The engine: stages, the loop over them, and the rules that decide what is kept."""
