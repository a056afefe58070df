"""What a run remembers, as Markdown for prompts: a stage's trajectory, and handoffs between stages."""

from egg.memory.render import render_contract, render_handoffs, render_score, render_trajectory

__all__ = ["render_contract", "render_handoffs", "render_score", "render_trajectory"]
