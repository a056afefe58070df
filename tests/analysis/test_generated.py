"""Inductor's text read as a structure: launches in order, what each computes, what it takes."""

from __future__ import annotations

from dataclasses import replace

from egg.analysis.generated import kernel_sources, launches, library_calls
from egg.core.recording import LaunchTime
from tests.recordings import CAST, EPILOGUE, GRAPH, NOTHING, PRODUCT, RECORDING


def test_launches_come_in_the_order_of_the_host_code_with_what_they_compute() -> None:
    cast, product, epilogue = launches(RECORDING)
    assert [cast.name, product.name, epilogue.name] == [CAST, PRODUCT, EPILOGUE]
    assert (cast.library, product.library, epilogue.library) == (False, True, False)
    assert cast.computes == ("aten._to_copy",)
    assert epilogue.computes == ("aten.mul", "aten.add", "aten.relu")
    assert cast.choice == GRAPH.launches[CAST]
    assert product.choice is None
    assert [launch.milliseconds for launch in launches(RECORDING)] == [0.08, 0.05, 0.002]
    assert launches(NOTHING) == ()


def test_times_of_other_launches_than_the_text_shows_go_by_name() -> None:
    timeline = (LaunchTime(CAST, 0.1), LaunchTime(CAST, 0.3), LaunchTime("torch.ops.aten.copy_.default", 1.0))
    assert [found.milliseconds for found in launches(replace(RECORDING, timeline=timeline))] == [
        0.2,
        None,
        None,
    ]


def test_library_calls_and_kernels_are_told_apart() -> None:
    assert library_calls(GRAPH) == (PRODUCT,)
    sources = kernel_sources(GRAPH)
    assert set(sources) == {CAST, EPILOGUE}
    assert sources[CAST].startswith(f"def {CAST}(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):")
    assert sources[CAST].endswith("tl.store(out_ptr0 + (x0), tmp1, None)")


def test_calls_of_operators_in_any_spelling_are_library_calls() -> None:
    lines = (
        "            buf9 = torch.ops.aten._fft_r2c.default(buf0, [2], 0, True)",
        "            aten.scatter_reduce_.two(buf1, 0, buf2, buf3, reduce='amax')",
    )
    text = GRAPH.text.replace("            del arg0_1\n", "\n".join(lines) + "\n")
    assert library_calls(replace(GRAPH, text=text)) == (
        "torch.ops.aten._fft_r2c.default",
        "aten.scatter_reduce_.two",
        PRODUCT,
    )


def test_a_text_of_another_kind_shows_nothing() -> None:
    other = replace(GRAPH, text="print('hello')\n")
    assert library_calls(other) == ()
    assert launches(replace(RECORDING, graph=other)) == ()
