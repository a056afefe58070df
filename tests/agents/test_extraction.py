"""Whatever a model wraps around its answer, the answer is found; what is broken is told, never mended."""

from __future__ import annotations

import ast
import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.agents.extraction import CutOff, Unreadable, extract_code, json_objects
from egg.agents.prompting import prompt_file

KERNEL = prompt_file("example_kernel.py")
SMALL = '''import torch


class ModelNew(torch.nn.Module):
    """Small."""

    def forward(self, x):
        return x
'''
IMPORTS, REST = SMALL.split("\n\n\n")


def same(found: str, wanted: str) -> bool:
    return ast.dump(ast.parse(found)) == ast.dump(ast.parse(wanted))


# -- code ------------------------------------------------------------------------------------------

WRAPPINGS = {
    "plain fence": "```python\n{}```",
    "prose around": "Sure! Here is it:\n\n```python\n{}```\n\nIt fuses `x` and `y`; don't forget to test.",
    "no tag": "```\n{}```",
    "py": "```py\n{}\n```",
    "capital tag": "```Python\n{}\n```",
    "titled fence": '```python title="kernel.py"\n{}\n```',
    "tildes": "~~~python\n{}~~~",
    "four ticks": "````python\n{}````",
    "raw": "{}",
    "raw with prose before": "Here is the kernel file.\n\n{}",
    "raw with prose behind": "{}\n\nThis kernel isn't slow: it reads x once.\n",
    "thinking": "<think>\nMaybe ```python\nclass ModelNew: pass\n```?\n</think>\n```python\n{}```",
    "template opened the thinking": "I should fuse.\n</think>\n\n```python\n{}```",
    "forgotten end": "```python\n{}",
    "glued end": "```python\n{}        # end```",
    "other fences": "```bash\npip install x\n```\n```python\n{}```\n```json\n{{}}\n```",
    "usage behind": "```python\n{}```\nUse it:\n```python\nmodel = ModelNew()\n```",
    "an earlier version": "Before:\n```python\nclass ModelNew:\n    old = 1\n```\nNow:\n```python\n{}```",
    "broken sketch before": "```python\ndef kernel(...:\n```\n```python\n{}```",
}


@pytest.mark.parametrize("code", [KERNEL, SMALL], ids=["kernel", "small"])
@pytest.mark.parametrize("name", WRAPPINGS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_code_is_found_in_every_wrapping(name, code, newline):
    reply = WRAPPINGS[name].format(code).replace("\n", newline)
    assert same(extract_code(reply), code)


def test_an_indented_fence_is_dedented():
    inside = "".join(f"   {line}\n" if line else "\n" for line in SMALL.split("\n"))
    assert same(extract_code(f"1. The file:\n\n   ```python\n{inside}   ```\n"), SMALL)


@pytest.mark.parametrize("outer", ["```python\n{}```", "{}", "prose\n\n```\n{}```\nmore"])
def test_fences_inside_a_docstring_do_not_end_the_file(outer):
    code = SMALL.replace('"""Small."""', '"""Use:\n\n```python\nModelNew()(x)\n```\n\nor\n```\nx\n```\n"""')
    assert same(extract_code(outer.format(code)), code)


def test_a_file_split_over_fences_is_put_together_in_order():
    kernel, module = KERNEL.split("\n\n\nclass ModelNew")
    reply = f"First the kernel.\n```python\n{kernel}\n```\nThen:\n```python\nclass ModelNew{module}```\n"
    assert same(extract_code(reply), KERNEL)


def test_blocks_that_supply_nothing_stay_out():
    reply = f"```python\nunrelated = 1\n```\n```python\n{IMPORTS}\n```\n```python\n{REST}```"
    assert same(extract_code(reply), SMALL)


def test_of_two_suppliers_the_nearest_one_before_is_taken():
    reply = (
        "```python\nimport torch\nSIZE = 1\n```\n```python\nimport torch\nSIZE = 2\n```\n"
        "```python\nclass ModelNew(torch.nn.Module):\n    size = SIZE\n```"
    )
    found = extract_code(reply)
    assert "SIZE = 2" in found
    assert "SIZE = 1" not in found


def test_a_class_split_in_the_middle_is_joined():
    head, tail = SMALL.split("\n    def forward")
    assert same(extract_code(f"```python\n{head}\n```\n```python\n    def forward{tail}```"), SMALL)


@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```"])
@pytest.mark.parametrize("code", [SMALL, f"```python\n{SMALL}```"])
def test_code_in_a_json_field(fence, code):
    assert same(extract_code(fence.format(json.dumps({"explanation": "x", "code": code}))), SMALL)


@pytest.mark.parametrize(
    "reply",
    [
        "```python\n" + SMALL,
        SMALL,
        "<think>hmm, let me see",
        "prose only",
        f"```python\n{SMALL}```\n```python\nimport",
    ],
    ids=["open fence", "raw", "thinking", "prose", "second fence open"],
)
def test_a_cut_reply_is_never_taken_for_a_whole_one(reply):
    with pytest.raises(CutOff, match="cut off"):
        extract_code(reply, cut=True)


def test_code_that_was_complete_before_the_cut_is_taken():
    assert same(extract_code(f"```python\n{SMALL}```\nThis kernel is", cut=True), SMALL)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("I cannot do that.", "no Python code"),
        ("```bash\nls\n```", "no Python code"),
        ("```python\nx = 1\n```", "does not define class ModelNew"),
        ("```python\nModelNew = make()\n```", "not defined as a class"),
        ("```python\ndef f():\n    class ModelNew: pass\n```", "not at module level"),
        ("```python\nclass ModelNew:\n    def f(:\n```", "not valid Python, line 2"),
        ("class ModelNew:\n    def f(:\n        pass\n", "not valid Python, line 2"),
        ("```python\nclass ModelNew: pass\n\0\n```", "not valid Python"),
        ("```python\nclass ModelNew: x = " + "(" * 500 + "\n```", "not valid Python"),
    ],
)
def test_what_is_wrong_is_told(reply, problem):
    with pytest.raises(Unreadable, match=problem):
        extract_code(reply)


def test_broken_raw_code_is_not_shortened_until_it_parses():
    with pytest.raises(Unreadable, match="not valid Python"):
        extract_code(
            "Here:\n\nclass ModelNew:\n    def f(self):\n        y = 1\n        y = = 2\n        return y\n"
        )


def test_a_model_that_repeats_itself_is_read_quickly():
    for piece in (
        "```python\nfoo bar\n```\n",
        "```\n",
        "{",
        '{"a": [',
        "# x\nimport\n",
        "<think>",
        "class ModelNew\n",
    ):
        with pytest.raises(Unreadable):
            extract_code(piece * 2000)
        assert json_objects(piece * 2000) == []


names = st.sampled_from(["alpha", "beta", "gamma", "BLOCK", "kernel"])
docstrings = st.text(
    st.characters(codec="utf-8", exclude_characters='\\"\r\0', exclude_categories=["Cs", "Cc", "Zl", "Zp"])
    | st.just("\n"),
    max_size=60,
)
prose = st.lists(
    st.sampled_from(
        [
            "Here is the kernel.",
            "It's 2x faster!",
            "- one change: {BLOCK}",
            "1. `tl.dot`",
            "",
            "**Note** (see [1])",
        ]
    ),
    max_size=4,
).map("\n".join)


@st.composite
def kernel_files(draw) -> str:
    lines = [f"{draw(names)} = {draw(st.integers())}" for _ in range(draw(st.integers(0, 3)))]
    body = "\n".join(lines)
    return (
        f'"""{draw(docstrings)} """\nimport torch\n{body}\n\n\nclass ModelNew(torch.nn.Module):\n'
        f'    """{draw(docstrings)} """\n\n    def forward(self, x):\n        return {draw(names)}\n'
    )


@settings(max_examples=200, deadline=None)
@given(kernel_files(), prose, prose, st.sampled_from(["python", "py", ""]), st.booleans())
def test_any_code_in_any_noise_comes_back(code, before, after, tag, thinks):
    thought = f"<think>{before}\n```python\nx = 1\n```</think>\n" if thinks else ""
    fence = "`" * 3
    reply = f"{thought}{before}\n{fence}{tag}\n{code}{fence}\n{after}"
    assert same(extract_code(reply), code)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300), st.booleans())
def test_any_text_is_read_or_refused(text, cut):
    with contextlib.suppress(Unreadable):
        assert "ModelNew" in extract_code(text, cut=cut)
    assert all(isinstance(found, dict) for found in json_objects(text))


# -- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        '{"a": 1, "b": ["x", {"c": null}]}',
        'Sure:\n```json\n{"a": 1, "b": ["x", {"c": null}]}\n```\nDone.',
        '<think>{"a": 2}</think>{"a": 1, "b": ["x", {"c": null}]}',
        '{"a": 1, "b": ["x", {"c": null,},],}',
        '{"draft": true}\n{"a": 1, "b": ["x", {"c": null}]}',
        'The set {x} and {"a": 1, "b": ["x", {"c": null}]} it is.',
    ],
)
def test_the_last_object_comes_first(reply):
    assert json_objects(reply)[0] == {"a": 1, "b": ["x", {"c": None}]}


def test_objects_inside_others_come_behind_them():
    assert json_objects('{"answer": {"a": 1}}') == [{"answer": {"a": 1}}, {"a": 1}]


def test_line_breaks_and_commas_inside_strings_are_kept():
    assert json_objects('{"a": "one,}\ntwo", }') == [{"a": "one,}\ntwo"}]


def test_half_an_object_is_none():
    assert json_objects('{"a": "begun and not') == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.text(max_size=8), json_values, max_size=5), st.booleans(), st.sampled_from([None, 2])
)
def test_any_object_in_noise_comes_back(value, is_fenced, indent):
    text = json.dumps(value, indent=indent)
    text = f"```json\n{text}\n```" if is_fenced else text
    assert json_objects(f"I think (see {{x}}) it's:\n{text}\nHope it helps!")[0] == value
