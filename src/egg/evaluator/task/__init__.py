"""The task's own room: brought to life, drawn from, resized, and held to account."""
