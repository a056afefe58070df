"""The command line: the table of its commands, and where the process begins."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from egg import __version__
from egg.cli.lazy import Entry, LazyGroup

OPTIMIZE, JUDGE, HAND_ON, OUTSIDE, KNOWN = (
    "Optimize programs",
    "Judge kernels",
    "Hand a result on",
    "Answer by hand, judge elsewhere",
    "Look at what is known",
)


class Commands(LazyGroup):
    """Every command of egg, in the order of the help."""

    entries = (
        Entry("optimize", "egg.cli.runs", OPTIMIZE, "Write a faster kernel file for a PyTorch program."),
        Entry("resume", "egg.cli.runs", OPTIMIZE, "Continue a run where it stopped."),
        Entry("replay", "egg.cli.runs", OPTIMIZE, "Make every decision of a run again from its log."),
        Entry("runs", "egg.cli.runs", OPTIMIZE, "List the runs in a folder: state, best kernel, cost."),
        Entry("report", "egg.cli.report", OPTIMIZE, "Write a run or a bench as one HTML page."),
        Entry("view", "egg.cli.view", OPTIMIZE, "Show runs and benches live in a browser on this machine."),
        Entry("tune", "egg.cli.tuning", OPTIMIZE, "Optimize the graphs that programs recorded."),
        Entry("bench", "egg.cli.bench", OPTIMIZE, "Run a suite of tasks and score it; compare benches."),
        Entry("eval", "egg.cli.judge_commands", JUDGE, "Judge one kernel."),
        Entry("eval-batch", "egg.cli.judge_commands", JUDGE, "Judge many kernels, resumably."),
        Entry("record", "egg.cli.judge_commands", JUDGE, "Record a kernel's call as a plan file."),
        Entry("audit", "egg.cli.judge_commands", JUDGE, "Check whether trivial answers pass a task."),
        Entry("profile", "egg.cli.profiling", JUDGE, "Show what limits a program or a kernel."),
        Entry("doctor", "egg.cli.judge_commands", JUDGE, "Check whether this machine can judge kernels."),
        Entry("export", "egg.cli.exporting", HAND_ON, "Write a kernel as a PyTorch operator."),
        Entry("bundle", "egg.cli.exporting", HAND_ON, "Pack a run's claim for others to check."),
        Entry("verify", "egg.cli.exporting", HAND_ON, "Judge a bundle's kernel again on this machine."),
        Entry("retarget", "egg.cli.exporting", HAND_ON, "Tune a run's kernel again for another GPU."),
        Entry("next", "egg.cli.outside", OUTSIDE, "Print the question a run waits with."),
        Entry("reply", "egg.cli.outside", OUTSIDE, "Answer the question of a run."),
        Entry("pending", "egg.cli.outside", OUTSIDE, "Collect kernels to judge on another machine."),
        Entry("results", "egg.cli.outside", OUTSIDE, "Bring evaluations back from another machine."),
        Entry("mcp", "egg.cli.mcp", OUTSIDE, "Serve the tools of runs and judge to a coding agent."),
        Entry("kernels", "egg.cli.kernels", KNOWN, "List, read, share and prune the kernel store."),
        Entry("skills", "egg.cli.skills", KNOWN, "List, read and check the skills of experts."),
        Entry("lessons", "egg.cli.lessons", KNOWN, "List, export and prune what runs have learned."),
    )


app = typer.Typer(
    name="egg",
    cls=Commands,
    help="Turn PyTorch programs into verified Triton kernels, and judge kernels: verdicts that hold up.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"egg {__version__}")
        raise typer.Exit(0)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _terminate(signum: int, frame: object) -> None:
    """Leave through the ``finally`` clauses, so that no child outlives us."""
    from egg.cli.errors import Terminated

    raise Terminated


def main() -> None:
    signal.signal(signal.SIGTERM, _terminate)
    app(prog_name="egg")
