"""Two recorded calls are one program up to sizes, or the first difference is named."""

from __future__ import annotations

import pytest

from egg.evaluator.plan.likeness import Call, likeness


def form(*shapes: tuple[int, ...]) -> str:
    tensors = ", ".join(f"('tensor', {shape}, {shape}, torch.float32)" for shape in shapes)
    return f"(('list', {tensors}), ('list', ('int', 4)))"


OWN, SMALL = form((4096, 256), (256, 512)), form((64, 32), (32, 16))


def compared(own: str, small: str, result: str = "y", other: str = ""):
    lines = [tuple(line.strip() for line in text.strip().splitlines()) for text in (own, small)]
    return likeness(Call(lines[0], result, OWN), Call(lines[1], other or result, SMALL))


ALIKE = {
    "sizes": (
        """t1 = torch.empty([4096, 512], dtype=torch.float32)
        k[(64, 1, 1)](x, self.w, t1, 4096, 512, 256, 64, num_warps=8)""",
        """t1 = torch.empty([64, 16], dtype=torch.float32)
        k[(2, 1, 1)](x, self.w, t1, 64, 16, 32, 32, num_warps=4, num_stages=3)""",
    ),
    "parts and products of sizes": (
        """t1 = x[:, 0:128]
        t2 = t1.view([524288, 1])
        t3 = torch.zeros([4098])
        t4 = torch.add(t2, 1)""",
        """t1 = x[:, 0:16]
        t2 = t1.view([1024, 1])
        t3 = torch.zeros([66])
        t4 = torch.add(t2, 1)""",
    ),
    "rows that a kernel needs aligned": (
        "k[(1, 1, 1)](TensorDescriptor(x, [4096, 256], [256, 1], [64, 64]), 4096)",
        """t1 = torch.empty([64, 40], dtype=torch.float32)
        t2 = torch.as_strided(x, [64, 32], [32, 1])
        t3 = t1[:, 0:32]
        t3.copy_(t2)
        k[(1, 1, 1)](TensorDescriptor(t1, [64, 32], [40, 1], [64, 64]), 64)""",
    ),
    "a copied weight": ("t1 = torch.clone(self.w)\nk[(1, 1, 1)](t1)", "k[(1, 1, 1)](self.w)"),
    "strides of a view": (
        "t1 = torch.as_strided(x, [4096, 256], [300, 1])\nt2 = torch.add(t1, 1)",
        "t1 = torch.as_strided(x, [64, 32], [37, 1])\nt2 = torch.add(t1, 1)",
    ),
    "a table of the host's": (
        "t1 = torch.tensor([1, 2, 3, 4], dtype=torch.int32)",
        "t1 = torch.tensor([7], dtype=torch.int32)",
    ),
    "memory that kernels alone read": (
        "t1 = torch.empty([977, 3])\nk[(1, 1, 1)](x, t1)\nj[(1, 1, 1)](t1, y)",
        "t1 = torch.empty([4, 3])\nk[(1, 1, 1)](x, t1)\nj[(1, 1, 1)](t1, y)",
    ),
    "memory that a function reads, padded": (
        """t1 = torch.empty([1024, 288])
        k[(1, 1, 1)](x, t1)
        t2 = torch.zeros([512, 512])
        j[(1, 1, 1)](x, t2)
        t3 = torch.empty([4608])
        j[(1, 1, 1)](x, t3)
        t4 = torch.exp(t1)
        t5 = torch.exp(t2)
        t6 = torch.exp(t3)""",
        """t1 = torch.empty([16, 48])
        k[(1, 1, 1)](x, t1)
        t2 = torch.zeros([16, 16])
        j[(1, 1, 1)](x, t2)
        t3 = torch.empty([80])
        j[(1, 1, 1)](x, t3)
        t4 = torch.exp(t1)
        t5 = torch.exp(t2)
        t6 = torch.exp(t3)""",
    ),
    "memory that is shorter at the own size": (
        "t1 = torch.empty([20])\nk[(1, 1, 1)](x, t1)\nt2 = torch.exp(t1)",
        "t1 = torch.empty([33])\nk[(1, 1, 1)](x, t1)\nt2 = torch.exp(t1)",
    ),
    "the scale of attention": (
        "t1 = torch.nn.functional.scaled_dot_product_attention(x, x, x, scale=0.0625)",
        f"t1 = torch.nn.functional.scaled_dot_product_attention(x, x, x, scale={32**-0.5!r})",
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_one_program_at_two_sizes(name: str) -> None:
    found = compared(*ALIKE[name])
    assert not found.difference
    assert not found.branches


OTHER = {
    "a function more": (
        "t1 = torch.sigmoid(x)\nk[(1, 1, 1)](t1, y)",
        "k[(1, 1, 1)](x, y)",
        "t1 = torch.sigmoid(x)",
    ),
    "a launch more": ("k[(1, 1, 1)](x, y)", "k[(1, 1, 1)](x, y)\nj[(1, 1, 1)](y)", "smaller size alone"),
    "another kernel": ("k[(1, 1, 1)](x, y)", "j[(1, 1, 1)](x, y)", "`j["),
    "another function": ("t1 = torch.exp(x)", "t1 = torch.exp2(x)", "exp2"),
    "another tensor": ("k[(1, 1, 1)](x, self.w)", "k[(1, 1, 1)](self.w, x)", "self.w"),
    "what a function made, copied": (
        "t1 = torch.exp(x)\nt2 = torch.empty_like(x)\nt2.copy_(t1)\nk[(1, 1, 1)](t2, y)",
        "t1 = torch.exp(x)\nt2 = torch.empty_like(x)\nt2.copy_(x)\nk[(1, 1, 1)](t2, y)",
        "`k[",
    ),
    "what a function made beside what is right": (
        "t1 = torch.empty([9])\nt2 = t1[0:4]\nt2.copy_(x)\nt3 = t1[4:9]\nt3.copy_(self.w)\nk[(1, 1, 1)](t1)",
        "t1 = torch.empty([9])\nt2 = t1[0:4]\nt2.copy_(x)\nk[(1, 1, 1)](t1)",
        "`k[",
    ),
    "a cast more": ("t1 = x.to(dtype=torch.int64, copy=True)\nk[(1, 1, 1)](t1)", "k[(1, 1, 1)](x)", "int64"),
    "another dtype": ("t1 = x.to(dtype=torch.int64)", "t1 = x.to(dtype=torch.float16)", "float16"),
    "another dimension in words": ("t1 = x.sum(dim='a')", "t1 = x.sum(dim='b')", "'b'"),
    "memory in another order": (
        "t1 = x.view([4096, 256])\nt2 = torch.sum(t1, 1)",
        "t1 = x.view([64, 32])\nt3 = torch.permute(t1, [0, 1])\nt2 = torch.sum(t3, 1)",
        "torch.sum",
    ),
    "a name that is bound twice": ("x = x.view([1])\nt1 = torch.exp(x)",) * 2 + ("second time",),
    "names in a circle": ("t1 = t2.view([1])\nt2 = t1.view([1])\nt3 = torch.exp(t1)",) * 2
    + ("behind a use",),
    "no Python": ("t1 = (", "t1 = (", "cannot be read"),
    "several statements": ("t1 = x.exp(); t2 = x.exp()",) * 2 + ("cannot be read",),
    "another statement": ("import os", "import os", "no step"),
}


@pytest.mark.parametrize("name", OTHER)
def test_another_program(name: str) -> None:
    own, small, words = OTHER[name]
    found = compared(own, small)
    assert words in found.difference
    assert not found.is_number


def test_another_result() -> None:
    steps = "k[(1, 1, 1)](x, y)"
    assert compared(steps, steps, "(x, y)", "(y, x)").difference


NUMBERS = {
    "a larger share that a kernel packs": (
        "t1 = torch.empty([4032, 256])\nk[(1, 1, 1)](x, t1)\nt2 = torch.exp(t1)",
        "t1 = torch.empty([16, 32])\nk[(1, 1, 1)](x, t1)\nt2 = torch.exp(t1)",
    ),
    "a larger share, by a view of zeros": (
        "t1 = torch.zeros([4032, 256])\nt3 = t1.view(-1)\nk[(1, 1, 1)](x, t3)\nt2 = torch.exp(t1)",
        "t1 = torch.zeros([16, 32])\nt3 = t1.view(-1)\nk[(1, 1, 1)](x, t3)\nt2 = torch.exp(t1)",
    ),
    "a larger share of a strided buffer": (
        "t1 = torch.empty_strided([4032, 256], [256, 1])\nk[(1, 1, 1)](x, t1)\nt2 = torch.exp(t1)",
        "t1 = torch.empty_strided([16, 32], [32, 1])\nk[(1, 1, 1)](x, t1)\nt2 = torch.exp(t1)",
    ),
    "memory like a larger share": (
        "t1 = x[0:4032]\nt3 = torch.empty_like(t1)\nk[(1, 1, 1)](x, t3)\nt2 = torch.exp(t3)",
        "t1 = x[0:16]\nt3 = torch.empty_like(t1)\nk[(1, 1, 1)](x, t3)\nt2 = torch.exp(t3)",
    ),
    "memory that is copied to in part": (
        "t1 = torch.empty([4032])\nt3 = t1[0:4]\nt3.copy_(y)\nk[(1, 1, 1)](x, t1)\nt2 = torch.exp(t1)",
        "t1 = torch.empty([16])\nt3 = t1[0:4]\nt3.copy_(y)\nk[(1, 1, 1)](x, t1)\nt2 = torch.exp(t1)",
    ),
    "a longer table": (
        f"t1 = torch.tensor({[*range(300)]})\nt2 = torch.index_select(x, 0, t1)",
        f"t1 = torch.tensor({[*range(3)]})\nt2 = torch.index_select(x, 0, t1)",
    ),
    "nearly all rows and a few": ("t1 = x[0:4032]\nt2 = torch.exp(t1)", "t1 = x[0:16]\nt2 = torch.exp(t1)"),
    "behind a copy": (
        "t1 = x[0:4032]\nt2 = torch.empty([9])\nt2.copy_(t1)\nt3 = torch.exp(t2)",
        "t1 = x[0:16]\nt2 = torch.empty([9])\nt2.copy_(t1)\nt3 = torch.exp(t2)",
    ),
    "another place of a copy": (
        "t1 = torch.empty([9])\nt2 = t1[0:4032]\nt2.copy_(x)\nt3 = torch.exp(t1)",
        "t1 = torch.empty([9])\nt2 = t1[0:16]\nt2.copy_(x)\nt3 = torch.exp(t1)",
    ),
    "another exponent": ("t1 = torch.pow(x, 3)", "t1 = torch.pow(x, 1)"),
    "another factor": ("t1 = torch.mul(x, 1.0)", "t1 = torch.mul(x, 0.9)"),
    "expanded in place of copied": (
        "t1 = torch.as_strided(x, [4096, 256], [0, 1])\nt2 = torch.exp(t1)",
        "t1 = torch.as_strided(x, [64, 32], [32, 1])\nt2 = torch.exp(t1)",
    ),
    "another dimension": ("t1 = torch.sum(x, 2)", "t1 = torch.sum(x, 1)"),
    "none": ("t1 = x[0:4096]\nt2 = torch.exp(t1)", "t1 = x[0:0]\nt2 = torch.exp(t1)"),
    "a flag": ("t1 = torch.sum(x, 0, True)", "t1 = torch.sum(x, 0, False)"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_sizes_do_not_explain(name: str) -> None:
    found = compared(*NUMBERS[name])
    assert found.is_number
    assert " at the task's own size" in found.difference


def test_what_a_launch_is_handed_is_told() -> None:
    """A mode, a flag and a factor; not sizes of blocks, nor large numbers."""
    own = "k[(9, 1, 1)](x, 5, True, 1.5, 1024, 999)"
    small = "k[(9, 1, 1)](x, 3, False, 2.5, 64, 77)"
    found = compared(own, small)
    assert not found.difference
    handed = sorted(words.partition(" handed ")[2] for words in found.branches)
    assert handed == [
        "1.5, at the smaller size 2.5",
        "5, at the smaller size 3",
        "True, at the smaller size False",
    ]


def test_copies_of_copies_do_not_grow_without_end() -> None:
    lines = ["t0 = torch.empty([1])", "t0.copy_(x)"]
    for number in range(1, 40):
        lines += [f"t{number} = torch.empty([1])", *[f"t{number}.copy_(t{number - 1})"] * 2]
    text = "\n".join([*lines, "y = torch.exp(t39)"])
    assert "too many steps" in compared(text, text).difference
