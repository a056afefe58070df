"""Triton's IR is read as it is printed, and no text makes the reader stumble."""

# The IR stands here as it is printed.
# ruff: noqa: E501

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.evaluator.work.arguments import TensorArgument
from egg.evaluator.work.count import count_work
from egg.evaluator.work.ttir import Type, parse, parse_type

TEXT = """\
#loc = loc("/tmp/kernel.py":3:1)
#loc3 = loc(unknown)
#loc39 = loc("a"(#loc))
module {
  tt.func public @kernel(%arg0: !tt.ptr<f16> {tt.divisibility = 16 : i32} loc("a"(#loc)), %b: !tt.ptr<f32, 1> loc(#loc39), %K: i32 loc("K"(#loc)), %d: !tt.tensordesc<tensor<64x32xf16>> loc("d"(#loc))) attributes {noinline = false} {
    %acc = arith.constant dense<0.000000e+00> : tensor<64x32xf32> loc(#loc3)
    %c0_i32 = arith.constant 0 : i32 loc(#loc3)
    %c32_i32 = arith.constant 32 : i32 loc(callsite(#loc3 at callsite("f"(#loc) at #loc)))
    %pid = tt.get_program_id x : i32 loc(#loc3)
    %0 = arith.cmpi sgt, %pid, %K : i32 loc(#loc3)
    cf.cond_br %0, ^bb1, ^bb2(%pid : i32) loc(#loc3)
  ^bb1:  // pred: ^bb0
    tt.return loc(#loc)
  ^bb2(%from: i32 loc("from"(#loc))):  // pred: ^bb0
    %r = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32> loc(#loc)
    %e = tt.expand_dims %r {axis = 0 : i32} : tensor<32xi32> -> tensor<1x32xi32> loc(#loc)
    %t:2 = scf.for %i = %c0_i32 to %K step %c32_i32 iter_args(%x = %acc, %y = %c0_i32) -> (tensor<64x32xf32>, i32)  : i32 {
      %p = tt.splat %arg0 : !tt.ptr<f16> -> tensor<1x32x!tt.ptr<f16>> loc(#loc)
      %q = tt.addptr %p, %e : tensor<1x32x!tt.ptr<f16>>, tensor<1x32xi32> loc(#loc)
      %v = tt.load %q evictionPolicy = evict_last {isVolatile = true} : tensor<1x32x!tt.ptr<f16>> loc(#loc)
      tt.print " {%odd} : text) ^bb9: " {hex = false, isSigned = array<i32: 1>} : %y : i32 loc(#loc)
      %l = tt.descriptor_load %d[%i, %c0_i32] : !tt.tensordesc<tensor<64x32xf16>> -> tensor<64x32xf16> loc(#loc)
      scf.yield %x, %i : tensor<64x32xf32>, i32 loc(#loc)
    } {tt.num_stages = 3 : i32} loc(#loc)
    %s:2 = "tt.reduce"(%t#0, %t#0) <{axis = 1 : i32}> ({
    ^bb0(%u: f32 loc(#loc), %w: f32 loc(#loc), %u2: f32 loc(#loc), %w2: f32 loc(#loc)):
      %z = arith.addf %u, %w : f32 loc(#loc)
      tt.reduce.return %z, %z : f32, f32 loc(#loc)
    }) : (tensor<64x32xf32>, tensor<64x32xf32>) -> (tensor<64xf32>, tensor<64xf32>) loc(#loc)
    %g = scf.if %0 -> (i32) {
      scf.yield %K : i32 loc(#loc)
    } else {
      %new = mystery.operation %K, %t#1 {what = "} loc("} : i32 loc(#loc)
      scf.yield %new : i32 loc(#loc)
    } loc(#loc)
    tt.store %b, %z1 : !tt.ptr<f32> loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc1 = loc("/tmp/kernel.py":4:1)
"""

ARGUMENTS = {"a": TensorArgument(4096, 2), "b": TensorArgument(4096, 4), "K": 64}


def test_parameters_go_by_their_names_in_the_source():
    entry = parse(TEXT).entry
    assert entry is not None
    assert [(p.reference, p.name) for p in entry.parameters] == [
        ("%arg0", "a"), ("%b", "a"), ("%K", "K"), ("%d", "d"),
    ]  # fmt: skip
    assert [p.type for p in entry.parameters] == [
        Type((), "f16", points=True),
        Type((), "f32", points=True),
        Type((), "i32"),
        Type((64, 32), "f16", describes=True),
    ]


def test_blocks_and_regions_hang_together():
    entry = parse(TEXT).entry
    assert entry is not None
    assert [block.label for block in entry.body.blocks] == ["", "^bb1", "^bb2"]
    assert entry.body.blocks[2].arguments == ("%from",)
    ops = {op.name: op for block in entry.body.blocks for op in block.ops}
    loop = ops["scf.for"]
    assert loop.results == ("%t#0", "%t#1")
    inside = [op.name for op in loop.regions[0].blocks[0].ops]
    assert inside == ["tt.splat", "tt.addptr", "tt.load", "tt.print", "tt.descriptor_load", "scf.yield"]
    branch = ops["scf.if"]
    assert [r.blocks[0].ops[-1].operands for r in branch.regions] == [("%K",), ("%new",)]
    assert branch.regions[1].blocks[0].ops[0].name == "mystery.operation"
    reduce = ops["tt.reduce"]
    assert reduce.operands == ("%t#0", "%t#0")
    assert reduce.attributes == {"axis": "1"}
    assert reduce.outputs == (Type((64,), "f32"),) * 2
    assert reduce.regions[0].blocks[0].arguments == ("%u", "%w", "%u2", "%w2")


def test_what_an_operation_says():
    entry = parse(TEXT).entry
    assert entry is not None
    ops = {op.name: op for block in entry.body.blocks for op in block.ops}
    assert ops["tt.make_range"].attributes == {"end": "32", "start": "0"}
    load = {op.name: op for op in ops["scf.for"].regions[0].blocks[0].ops}["tt.load"]
    assert load.operands == ("%q",)
    assert load.inputs == (Type((1, 32), "f16", points=True),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor<64x32x!tt.ptr<f16>>", Type((64, 32), "f16", points=True)),
        ("tensor<1x128xbf16, #blocked>", Type((1, 128), "bf16")),
        ("!tt.ptr<f32, 3>", Type((), "f32", points=True)),
        ("!tt.tensordesc<128x64xf8E4M3FN>", Type((128, 64), "f8E4M3FN", describes=True)),
        ("<64x64xf32>", Type((64, 64), "f32")),
        ("<f32>", Type((), "f32")),
        ("i1", Type((), "i1")),
        ("index", Type((), "index")),
    ],
)
def test_types(text: str, expected: Type):
    assert parse_type(text) == expected


def test_sizes_of_elements():
    assert [parse_type(t).itemsize for t in ("f8E5M2", "bf16", "f32", "f64", "i1", "i64")] == [
        1,
        2,
        4,
        8,
        1,
        8,
    ]
    assert parse_type("f8E4M3FN").floating
    assert parse_type("i8").integral
    assert not parse_type("!tt.ptr<i8>").integral


def test_what_is_not_known_is_passed_over():
    work = count_work(TEXT, ARGUMENTS, (3,))
    assert work is not None
    assert work.iterations == 2
    assert work.flops == 3 * 2 * 64 * 31 / 2, "one addition for each pair that is reduced"
    assert work.loaded_bytes == 3 * 2 * (2 * 32 + 2 * 64 * 32)


@pytest.mark.parametrize("text", ["", "module {", "\0\0", "tt.func public @k() {", "}\n}\n}", "{" * 50_000])
def test_no_ir_at_all(text: str):
    assert parse(text).entry is None or count_work(text, {}, (4,)) is not None
    assert count_work(text, ARGUMENTS, (1 << 30, 1, 1)) is None or "@k" in text


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_any_text(text: str):
    count_work(text, {}, (2,))
    count_work(f"tt.func public @k(%x: i32) {{\n{text}\n}}", {"x": 3}, (2,))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(TEXT)))
def test_ir_that_breaks_off(at: int):
    count_work(TEXT[:at], ARGUMENTS, (7, 3), steps=2_000)


LINES = TEXT.splitlines()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, len(LINES) - 1), max_size=80), st.randoms(use_true_random=False))
def test_ir_with_its_lines_mixed_up(order, random):
    """And operands and numbers exchanged for others."""
    text = "\n".join([*LINES[3:5], *(LINES[i] for i in order)])
    for _ in range(4):
        old, new = (
            random.choice(["%K", "%i", "32", "64", "i32", "f16", "%e"]),
            random.choice(
                ["%t#1", "%q", "0", "-7", "999999999999", "f32", "!tt.ptr<i64>", "tensor<3x5xi8>", ""]
            ),
        )
        text = text.replace(old, new)
    start = time.process_time()
    count_work(text, ARGUMENTS, (1_000_000, 5, 2), steps=2_000)
    assert time.process_time() - start < 5


def test_a_loop_that_never_ends_is_left():
    text = """
tt.func public @k(%x: !tt.ptr<f32> loc("x"(#loc)), %n: i32 loc("n"(#loc))) {
  %c0 = arith.constant 0 : i32
  %w = scf.while (%i = %n) : (i32) -> i32 {
    %go = arith.cmpi sge, %i, %c0 : i32
    scf.condition(%go) %i : i32
  } do {
  ^bb0(%j: i32):
    %v = tt.load %x : !tt.ptr<f32>
    scf.yield %j : i32
  }
  cf.br ^bb1
^bb1:
  %u = tt.load %x : !tt.ptr<f32>
  cf.br ^bb1
}"""
    work = count_work(text, {"x": TensorArgument(4, 4), "n": 5}, (1,))
    assert work is not None
    assert not work.complete


def test_a_function_that_calls_itself_is_left():
    text = """
tt.func public @k(%n: i32) {
  tt.call @k(%n) : (i32) -> ()
  tt.call @k(%n) : (i32) -> ()
  tt.return
}"""
    start = time.process_time()
    work = count_work(text, {"n": 5}, (1,), steps=2_000)
    assert work is None or not work.complete
    assert time.process_time() - start < 5
