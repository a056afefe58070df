"""What a run remembers, as Markdown for prompts, and what all runs have taught: lessons and their store."""

from egg.memory.render import render_contract, render_handoffs, render_score, render_trajectory

__all__ = ["render_contract", "render_handoffs", "render_score", "render_trajectory"]
