"""With the author's own test at the end of the file, which an import does not run.

task: row_softmax
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    e = tl.load(x + at, mask=inside, other=-float("inf"))
    e = tl.exp(e - tl.max(e, axis=0))
    tl.store(y + at, e / tl.sum(e, axis=0), mask=inside)


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax_rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(128, 512, device="cuda")
    torch.testing.assert_close(ModelNew()(x), torch.softmax(x, -1))
    print(triton.testing.do_bench(lambda: ModelNew()(x)))
