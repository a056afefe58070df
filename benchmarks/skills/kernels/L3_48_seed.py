"""A state-space layer, first draft: each chunk's own part in a kernel, the carried states by PyTorch."""

import torch
import triton
import triton.language as tl


@triton.jit
def within(x, a, b, c, y, length, heads, SIZE: tl.constexpr, STATE: tl.constexpr, CHUNK: tl.constexpr):
    head = tl.program_id(0) % heads
    batch = (tl.program_id(0) // heads).to(tl.int64)
    step = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    place = (batch * length + step) * heads + head
    fade = tl.cumsum(tl.load(a + place), 0)
    state = tl.arange(0, STATE)
    read = tl.load(c + place[:, None] * STATE + state[None, :])
    write = tl.load(b + place[:, None] * STATE + state[None, :])
    score = tl.dot(read, tl.trans(write), input_precision="tf32x3")
    past = step[:, None] >= step[None, :]
    score = score * tl.exp(tl.where(past, fade[:, None] - fade[None, :], -float("inf")))
    part = place[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(y + part, tl.dot(score, tl.load(x + part), input_precision="tf32x3"))


class ModelNew(torch.nn.Module):
    def __init__(self, batch_size, seq_length, n_heads, d_head, d_state, block_len=64):
        super().__init__()
        self.block_len = block_len
        self.A = torch.nn.Parameter(torch.randn(batch_size, seq_length, n_heads))
        self.B = torch.nn.Parameter(torch.randn(batch_size, seq_length, n_heads, d_state))
        self.C = torch.nn.Parameter(torch.randn(batch_size, seq_length, n_heads, d_state))

    def forward(self, X):
        batch, length, heads, size = X.shape
        chunk, state = self.block_len, self.B.shape[-1]
        chunks = length // chunk
        y = torch.empty_like(X)
        within[(batch * heads, chunks)](
            X, self.A, self.B, self.C, y, length, heads, SIZE=size, STATE=state, CHUNK=chunk
        )
        fade = torch.cumsum(self.A.view(batch, chunks, chunk, heads), dim=2)
        b = self.B.view(batch, chunks, chunk, heads, state)
        left = torch.exp(fade[:, :, -1:] - fade)
        states = torch.einsum("bclhn,bclh,bclhp->bchpn", b, left, X.view(batch, chunks, chunk, heads, size))
        before = torch.zeros_like(states[:, :1])
        carried = [before]
        for one in range(chunks - 1):
            kept = torch.exp(fade[:, one : one + 1, -1])[..., None, None]
            before = before * kept + states[:, one : one + 1]
            carried.append(before)
        c = self.C.view(batch, chunks, chunk, heads, state)
        rest = torch.einsum("bclhn,bchpn,bclh->bclhp", c, torch.cat(carried, dim=1), torch.exp(fade))
        return y + rest.reshape(batch, length, heads, size)
