"""One step of beam search with BART-large, fp32 scores over 50265 words: 64 sentences, 5 beams.

The histories and running scores follow the beams that the last step chose; the new scores are summed log
probabilities, finished beams only continue with padding, and the ten best of a sentence are returned.
"""

import torch
import torch.nn.functional as F
from torch import nn

sentences = 64
beams = 5
vocabulary = 50265
length = 64
padding = 1
end = 2


class Model(nn.Module):
    def __init__(self, padding: int, end: int):
        super().__init__()
        self.padding, self.end = padding, end

    def forward(
        self, logits: torch.Tensor, running: torch.Tensor, history: torch.Tensor, parents: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sentences, beams, vocabulary = logits.shape
        rows = (parents + beams * torch.arange(sentences, device=parents.device)[:, None]).view(-1)
        history = history.index_select(0, rows)
        scores = running.gather(1, parents)
        lprobs = F.log_softmax(logits, dim=-1)
        finished = (history == self.end).any(dim=-1).view(sentences, beams, 1)
        words = torch.arange(vocabulary, device=logits.device)
        only_padding = torch.where(words == self.padding, 0.0, -1e4)
        lprobs = torch.where(finished, only_padding, lprobs)
        total = lprobs + scores.unsqueeze(-1)
        best = total.view(sentences, -1).topk(2 * beams, dim=1).values
        return best, history.view(sentences, beams, -1)


def get_inputs():
    logits, running = 3.0 * torch.randn(sentences, beams, vocabulary), -torch.rand(sentences, beams)
    history = torch.randint(0, 10 * length, (sentences * beams, length))
    return [logits, running, history, torch.randint(0, beams, (sentences, beams))]


def get_init_inputs():
    return [padding, end]
