"""How many tokens a text will be, without the model's own tokenizer."""

from __future__ import annotations

import re

LETTERS_PER_TOKEN = 5
"""Common words are one token whatever their length; rare ones and identifiers break into such pieces."""

PIECES = re.compile(r"([A-Za-z]+)|([0-9]|[!-/:-@\[-`{-~])|(\s{2,}|[^\S ])|([^\x00-\x7f]+)")
"""Letters; a digit or a punctuation mark; blanks beyond the one that joins its word; everything else."""


def estimate_tokens(text: str) -> int:
    """A cheap estimate that errs on the high side, so that what is planned with it fits.

    It follows what byte-pair tokenizers do: they split at the borders of words, digits and
    punctuation before they merge anything. Code has many such borders, so counting its
    characters alone would come out at half of the truth. Outside ASCII every byte is counted:
    that is what tokenizers fall back to where they know no longer piece.
    """
    tokens = 0
    for letters, mark, blanks, other in PIECES.findall(text):
        if letters:
            tokens += -(-len(letters) // LETTERS_PER_TOKEN)
        elif mark or blanks:
            tokens += 1
        else:
            tokens += len(other.encode("utf-8", errors="replace"))
    return tokens
