"""Record in one process, ``egg tune``, use the kernels in another: through the public doors alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.cli.app import app
from tests.modules.tuned import Stores, egg, tuned_stores, without_the_interpreter

pytestmark = pytest.mark.timeout(900)  # three graphs are judged in full, in the interpreter


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return tuned_stores(tmp_path_factory.mktemp("tuned"))


@pytest.fixture(scope="module")
def store(stores: Stores) -> Path:
    return stores.inferring


def test_graphs_are_recorded_and_tuned(stores: Stores) -> None:
    inferred, trained = stores.recorded
    assert {graph["route"] for graph in inferred["graphs"]} == {"recorded"}
    assert [(row["part"], row["route"]) for row in trained["graphs"]] == [
        ("forward", "recorded"),
        ("backward", "recorded"),
    ]
    assert stores.listed == 2
    assert stores.tuned == (["tuned"], ["tuned", "tuned"])


def test_a_second_process_calls_the_kernel_on_other_weights_and_data(stores: Stores) -> None:
    again = stores.again[0]
    assert again["worst"] < 1e-6
    by_route = {graph["route"]: graph for graph in again["graphs"]}
    assert set(by_route) == {"kernel", "recorded"}
    assert by_route["kernel"]["counts"] == {"kernel": 4, "fallback": 0, "outside": {}, "failure": ""}


def test_the_entry_has_its_counts_its_verdict_and_its_files(store: Path):
    rows = egg("kernels", "list", "--store", store)["entries"]
    assert [row["state"] for row in rows] == ["tuned", "recorded"]
    tuned = rows[0]
    assert tuned["seen"]["calls"] >= 4
    assert tuned["speedups"] == {}
    shown = egg("kernels", "show", tuned["key"][:10], "--store", store)
    assert shown["entry"]["state"]["evaluation"]["verdict"]["kind"] == "accepted"
    kernel = CliRunner().invoke(app, ["kernels", "show", tuned["key"], "--kernel", "--store", str(store)])
    assert "@triton.jit" in kernel.stdout
    task = CliRunner().invoke(app, ["kernels", "show", tuned["key"], "--task", "--store", str(store)])
    assert "class Model(nn.Module)" in task.stdout


def test_without_the_interpreter_the_kernel_is_not_used_and_the_answer_is_right(stores: Stores):
    found = without_the_interpreter(stores)
    assert found["worst"] == 0.0
    reasons = [graph["reason"] for graph in found["graphs"] if graph["route"] == "left"]
    assert any("TRITON_INTERPRET" in reason or "interpreter" in reason for reason in reasons)


def test_a_tuned_graph_is_not_tuned_again(store: Path):
    waiting = [
        row for row in egg("kernels", "list", "--store", store)["entries"] if row["state"] == "recorded"
    ]
    assert len(waiting) == 1
    assert (
        egg("kernels", "list", "--state", "tuned", "--store", store)["entries"][0]["key"] != waiting[0]["key"]
    )


def test_a_store_travels_as_a_folder_and_is_pruned(store: Path, tmp_path: Path):
    away, home = tmp_path / "away", tmp_path / "home"
    assert egg("kernels", "export", away, "--state", "tuned", "--store", store)["exported"] == 1
    (home / "entries").mkdir(parents=True)
    assert egg("kernels", "import", away, "--store", home) == {"read": 1, "taken": 1}
    assert egg("kernels", "import", away, "--store", home) == {"read": 1, "taken": 0}
    (row,) = egg("kernels", "list", "--store", home)["entries"]
    assert row["state"] == "tuned"
    assert egg("kernels", "prune", "--state", "tuned", "--dry-run", "--store", home)["matching"] == 1
    assert egg("kernels", "prune", "--other-versions", "--store", home)["deleted"] == 0
    assert egg("kernels", "prune", "--older-than", 0, "--store", home)["deleted"] == 1
    assert egg("kernels", "list", "--store", home)["entries"] == []
    assert list((home / "kernels").iterdir()) == []
    assert egg("tune", "--store", home) == {"tuned": [], "elsewhere": 0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "--state", "odd"], "unknown state"),
        (["list", "--store", "nowhere"], "no such folder"),
        (["show", "zz"], "no entry"),
        (["prune"], "nothing says what to delete"),
        (["prune", "--older-than", "nan"], "no number of days"),
        (["import", "nowhere"], "no such folder"),
    ],
)
def test_mistakes_are_usage(store: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EGG_STORE", str(store))
    done = CliRunner().invoke(app, ["kernels", *words])
    assert done.exit_code == 2
    assert message in done.output


def test_a_limit_is_a_number_from_one(store: Path):
    done = CliRunner().invoke(app, ["tune", "--limit", "0", "--store", str(store)])
    assert done.exit_code == 2
    assert "--limit is 0" in done.output


def test_a_second_process_trains_on_both_kernels_and_its_gradients_are_right(stores: Stores) -> None:
    again = stores.again[1]
    assert again["worst"] < 1e-4
    for row in again["graphs"]:
        assert (row["route"], row["counts"]["kernel"], row["counts"]["fallback"]) == ("kernel", 3, 0)


def test_other_shapes_train_as_before(stores: Stores) -> None:
    again = stores.again[2]
    assert again["worst"] < 1e-4
    assert [row["counts"]["kernel"] for row in again["graphs"][:2]] == [2, 2]
    assert {row["route"] for row in again["graphs"][2:]} <= {"recorded", "left"}
