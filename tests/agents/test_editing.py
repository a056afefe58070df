"""Edits of kernel files: applied where they are clear, refused with the reason where they are not."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.agents.edit_replies import read_draft, read_edits
from egg.agents.editing import BadEdit, applied, definitions, lines_of
from egg.agents.extraction import CutOff, Unreadable
from egg.agents.outline import within_budget
from egg.core.codec import from_json, to_json
from egg.core.plan import Draft, Edit, EditKind
from egg.core.tokens import estimate_tokens

BASE = '''"""A file."""

import torch
import triton
from torch import nn

BLOCK, WARPS = 128, 4  # tiles
STAGES = 3


@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    """Scale rows."""
    a = 1
    a = 1
    tl.store(x_ptr, a)


# the host side
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = """
not indented
"""

    def forward(self, x):
        scale[(1,)](x, 1, BLOCK, num_warps=WARPS)
        return x
'''
FORWARD = '''def forward(self, x):
    """Run.
    Twice."""
    scale[(2,)](x, 1, BLOCK, num_warps=WARPS)
    return x
'''


def replacing(target: str, text: str) -> str:
    return applied(BASE, [Edit(EditKind.REPLACE, target, text)])


def test_a_kernel_is_replaced_and_the_rest_stays_byte_for_byte():
    new = "@triton.jit\ndef scale(x_ptr, n, BLOCK: tl.constexpr):\n    pass\n"
    result = replacing("scale", new)
    head, tail = BASE.split("@triton.jit")[0], BASE[BASE.index("\n\n# the host side") :]
    assert result == head + new + tail


@pytest.mark.parametrize("indent", [0, 4, 8])
def test_a_method_gets_the_indentation_of_its_class(indent):
    """A docstring of several lines keeps what it says, wherever the text began."""
    shifted = "".join(" " * indent + line for line in FORWARD.splitlines(keepends=True))
    method = ast.parse(replacing("ModelNew.forward", shifted)).body[-1].body[-1]  # type: ignore[attr-defined]
    assert ast.get_docstring(method, clean=False) == "Run.\n" + " " * (4 + indent) + "Twice."
    assert "scale[2,]" in ast.unparse(method)


def test_constants_that_are_assigned_together_are_replaced_together():
    assert "BLOCK, WARPS = 256, 8\nSTAGES" in replacing("WARPS", "BLOCK, WARPS = 256, 8")
    with pytest.raises(BadEdit, match="must define BLOCK and WARPS"):
        replacing("BLOCK", "BLOCK = 256")


def test_a_passage_is_changed_where_it_occurs_once():
    edit = Edit(EditKind.CHANGE, "ModelNew.forward", "(4,)", "(1,)")
    assert applied(BASE, [edit]) == BASE.replace("(1,)", "(4,)")
    with pytest.raises(BadEdit, match="occurs 2 times in scale"):
        applied(BASE, [Edit(EditKind.CHANGE, "scale", "b = 2", "a = 1")])
    with pytest.raises(BadEdit, match="does not occur in scale: copy it exactly"):
        applied(BASE, [Edit(EditKind.CHANGE, "scale", "b = 2", "a = 7")])


def test_definitions_are_added_and_deleted():
    added = applied(BASE, [Edit(EditKind.ADD, "scale", "@triton.jit\ndef shift(y):\n    pass\n")])
    names = [d.name for d in definitions(added)]
    assert names.index("shift") == names.index("scale") + 1
    assert applied(added, [Edit(EditKind.DELETE, "shift")]).count("def shift") == 0
    method = applied(BASE, [Edit(EditKind.ADD, "ModelNew.__init__", "def plan(self):\n    return 1\n")])
    assert [d.name for d in definitions(method)][-2:] == ["ModelNew.plan", "ModelNew.forward"]
    with pytest.raises(BadEdit, match="still used in line"):
        applied(BASE, [Edit(EditKind.DELETE, "scale")])
    with pytest.raises(BadEdit, match="in the file already: use `replace scale`"):
        applied(BASE, [Edit(EditKind.ADD, "STAGES", "def scale(): pass")])


@pytest.mark.parametrize(
    ("target", "text", "reason"),
    [
        ("scales", "def scales(): pass", "near it are scale"),
        ("scale", "def other(): pass", "the text defines other, and it must define scale"),
        ("scale", "def scale(): pass\nx = 1", "has 2 statements"),
        ("scale", "scale = 3", "scale is a function, and the text is a constant"),
        ("scale", "def scale(:", "the text is not valid Python, line 1"),
        ("scale", "", "has 0 statements"),
        ("ModelNew.forward", "def forward(self): pass\ndef more(self): pass", "has 2 statements"),
    ],
)
def test_a_replacement_that_is_not_its_target_is_refused(target, text, reason):
    with pytest.raises(BadEdit, match=reason):
        replacing(target, text)


def test_an_ambiguous_target_is_refused():
    twice = BASE + "\n\ndef scale():\n    pass\n"
    with pytest.raises(BadEdit, match=r"defined 2 times in the file \(lines 11, 32\)"):
        applied(twice, [Edit(EditKind.REPLACE, "scale", "def scale(): pass")])
    shared = "x = 1; y = 2\nclass ModelNew: pass\n"
    with pytest.raises(BadEdit, match="shares a line"):
        applied(shared, [Edit(EditKind.REPLACE, "x", "x = 3")])


def test_edits_that_contradict_each_other_or_change_nothing_are_refused():
    same = Edit(EditKind.REPLACE, "STAGES", "STAGES = 3")
    with pytest.raises(BadEdit, match="leave the file as it was"):
        applied(BASE, [same])
    with pytest.raises(BadEdit, match="more than once"):
        applied(BASE, [same, same])
    inside = Edit(EditKind.CHANGE, "ModelNew.forward", "(4,)", "(1,)")
    whole = Edit(EditKind.REPLACE, "ModelNew", "class ModelNew: pass")
    with pytest.raises(BadEdit, match="replaces it as a whole"):
        applied(BASE, [whole, inside])


def test_a_change_cannot_reach_outside_its_target():
    """A passage that opens a string would swallow what follows."""
    for text in ('"""', "a = (", "a = 1\ndef escaped():\n    pass"):
        with pytest.raises(BadEdit):
            applied(BASE, [Edit(EditKind.CHANGE, "scale", text, "    tl.store(x_ptr, a)")])


# -- properties ------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        "a",
        "b1",
        "def ",
        "(",
        ")",
        ":",
        "\n",
        "    ",
        '"""',
        "'",
        "=",
        "1",
        "class ",
        "@",
        "\\",
        "#",
        "\t",
        ";",
        "\r",
    ]
)
TEXT = st.one_of(
    st.lists(PIECES, max_size=12).map("".join),
    st.sampled_from(["STAGES = 5", "def scale(x):\n    return 1", FORWARD, "BLOCK, WARPS = 1, 2", "\tpass"]),
)
TARGET = st.sampled_from(
    ["scale", "STAGES", "BLOCK", "ModelNew", "ModelNew.forward", "absent", "ModelNew.__init__"]
)
EDITS = st.builds(
    Edit,
    st.sampled_from(EditKind),
    TARGET,
    TEXT,
    st.one_of(TEXT, st.sampled_from(["a = 1", "(1,)", "return x", "STAGES = 3"])),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(EDITS, min_size=1, max_size=3))
def test_any_edit_is_applied_cleanly_or_refused_with_a_reason(edits):
    """The result parses, and every definition that no edit names is there with the same text."""
    try:
        result = applied(BASE, edits)
    except BadEdit:
        return
    named = {edit.target for edit in edits}
    named |= {"WARPS"} if "BLOCK" in named else set()
    after = {d.name: ast.dump(d.node) for d in definitions(result)}
    for definition in definitions(BASE):
        owner = definition.name.partition(".")[0]
        inner = any(target.startswith(f"{definition.name}.") for target in named)
        if definition.name not in named and owner not in named and not inner:
            assert after[definition.name] == ast.dump(definition.node)
    assert lines_of(result)[:6] == lines_of(BASE)[:6]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([d.name for d in definitions(BASE)]))
def test_replacing_a_definition_by_itself_and_a_comment_changes_that_comment_alone(name):
    definition = next(d for d in definitions(BASE) if d.name == name)
    own = "".join(lines_of(BASE)[definition.first - 1 : definition.last])
    result = replacing(name, f"# seen\n{own}" if definition.indent == 0 else f"    # seen\n{own}")
    assert result.count("# seen\n") == 1
    assert re.sub(r" *# seen\n", "", result) == BASE


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400))
def test_an_outline_keeps_every_name_and_what_is_whole_stays_whole(room):
    shown = within_budget(BASE, room, {"scale": 0.9})
    assert {d.name for d in definitions(shown.text)} == {d.name for d in definitions(BASE)}
    if estimate_tokens(BASE) <= room:
        assert shown.text == BASE
    if shown.hidden:
        assert estimate_tokens(shown.text) < estimate_tokens(BASE)


# -- replies ---------------------------------------------------------------------------------------

REPLY = """Two edits:

```python
# edit: replace STAGES
STAGES = 4

# edit: change ModelNew.forward
<<<<<<< old
        return x
=======
        return x + 0
>>>>>>> new
```
"""


def test_a_reply_of_edits_is_a_draft_with_its_edits():
    draft = read_draft(REPLY, BASE)
    assert draft.source == BASE.replace("STAGES = 3", "STAGES = 4").replace("return x", "return x + 0")
    assert [(e.operation, e.target) for e in draft.edits] == [
        ("replace", "STAGES"),
        ("change", "ModelNew.forward"),
    ]
    assert from_json(Draft, to_json(draft)) == draft


def test_a_draft_of_an_older_log_has_no_edits():
    assert from_json(Draft, {"kind": "draft", "source": BASE}) == Draft(BASE)


def test_a_whole_file_is_still_an_answer():
    assert read_draft(f"```python\n{BASE}```", BASE.replace("3", "4")) == Draft(BASE)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("```python\n# edit: move scale\n```", "is not one of replace NAME"),
        ("```python\n# edit: change scale\na = 2\n```", "needs the marks"),
        ("```python\nx = 1\n# edit: delete scale\n```", "in front of the first"),
        ("```python\n# edit: delete scale\nx = 1\n```", "has a text below it"),
        (REPLY + f"\n```python\n{BASE}```", "beside the edits"),
        ("```python\ndef scale(): pass\n```", "needs a line `# edit: replace NAME` above it"),
        ("```python\n# edit: delete ModelNew\n```", "does not define class ModelNew"),
    ],
)
def test_a_reply_that_could_mean_two_things_is_refused(reply, reason):
    with pytest.raises(Unreadable, match=reason):
        read_draft(reply, BASE)


def test_edits_need_a_file_and_an_end():
    with pytest.raises(BadEdit, match="write the whole file"):
        read_draft(REPLY, None)
    with pytest.raises(CutOff):
        read_edits(REPLY.rstrip().removesuffix("```"), cut=True)
