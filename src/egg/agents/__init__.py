"""The llm team: prompts, reply contracts, and asking until an answer is usable or plainly is not."""
