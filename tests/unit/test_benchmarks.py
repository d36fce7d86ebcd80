"""What the benchmarks build from the engine's own parts still fits together."""

import subprocess
import sys
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from benchmarks import compare, engine_cost, guarantees, look_ups
from benchmarks.stage import load
from benchmarks.stage.servers import Servers
from sqlalchemy import create_engine


@pytest.mark.parametrize("kind", ["direct", "unit"])
def test_the_engine_is_measured_without_a_broker(kind: str) -> None:
    """Every stage of a message's way is found and has a cost."""
    costs = engine_cost.run(kind, engine_cost.WINDOW)
    assert costs["engine_us"] > 0
    assert set(costs) >= {"decode_us", "envelope_us", "queue_us", "run_us", "settle_us"}


@pytest.mark.parametrize(("copies", "times"), [(0.0, {1}), (0.5, {1, 2}), (1.0, {2}), (9.0, {10})])
def test_orders_come_as_often_as_said(copies: float, times: set[int]) -> None:
    """Also more than twice."""
    orders = load.Orders(3000, copies)
    counts = Counter(orders.numbers())
    assert (len(counts), sum(counts.values()), set(counts.values())) == (orders.unique, 3000, times)


def test_every_strategy_has_its_price() -> None:
    """Anyone who adds a strategy adds a line to what each guarantee costs."""
    priced = set[str]()
    for guarantee in guarantees.GUARANTEES.values():
        for part in guarantee.strategy if isinstance(guarantee.strategy, tuple) else (guarantee.strategy,):
            priced |= {part} if isinstance(part, str) else set(part)
    assert priced == {point.name for point in entry_points(group="oncemq.strategies")}


def test_the_filter_in_memory_is_measured_without_a_server() -> None:
    """What is looked up is found as the strategy finds it."""
    nowhere = Servers("", "", None, create_engine("sqlite://"))
    assert look_ups.bloom(nowhere, 0.001)[look_ups.LOOK_UPS] > 0


def test_old_and_new_are_measured_in_turns() -> None:
    """The order changes with each pair: what wears out in a run hits both alike."""
    order: list[str] = []

    def measured(name: str) -> float:
        order.append(name)
        return float(len(order))

    pairs = compare.in_turns(lambda: measured("old"), lambda: measured("new"), 3)
    assert order == ["old", "new", "new", "old", "old", "new"]
    assert pairs == [(1, 2), (4, 3), (5, 6)]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([1.01, 1.2, 1.02], "faster"),
        ([0.99, 0.9, 0.8], "slower"),
        ([0.5, 0.6, 1.001], "no difference shown"),
        ([1.5, 1.0, 1.6], "no difference shown"),
    ],
)
def test_a_comparison_has_a_verdict_only_where_every_pair_agrees(found: list[float], said: str) -> None:
    """A pair that says the opposite, or nothing, takes the verdict away."""
    assert compare.verdict(found) == said


def test_a_ratio_above_one_is_always_the_better_one() -> None:
    """Less time a message and more messages a second count alike."""
    assert compare.ratios([(10.0, 20.0)], more_is_better=True) == [2.0]
    assert compare.ratios([(10.0, 5.0)], more_is_better=False) == [2.0]


def test_only_our_own_cases_are_compared_each_once() -> None:
    """A row against several peers is one case."""
    found = compare.subjects(["once", "engine"])
    assert [subject.case for subject in found] == ["oncemq-1", "engine-unit", "engine-direct"]
    assert [subject.more_is_better for subject in found] == [True, False, False]


def test_rates_are_compared_by_processor_time_where_asked() -> None:
    """On a busy machine a rate says little; figures that are times already stay as they are."""
    found = compare.subjects(["once", "engine"], processor=True)
    assert [subject.figure for subject in found] == ["cpu_us", "engine_us", "engine_us"]
    assert not any(subject.more_is_better for subject in found)


def test_a_change_to_a_strategy_can_be_compared() -> None:
    """By its own row, on the engine alone, where a rate and processor time are measured."""
    [subject] = compare.subjects(["optimistic_lock"], processor=True)
    assert (subject.case, subject.figure) == ("engine, optimistic_lock, in order", "cpu_us")


def test_processes_that_a_tree_starts_run_its_own_code(tmp_path: Path) -> None:
    """Also where its benchmarks give them a path that names the tree alone."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "oncemq"\nentry-points = {}\n')
    package = tmp_path / "framework" / "oncemq"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("print('of the tree')")
    compare.surroundings_of(tmp_path)
    command = [sys.executable, "-c", "import oncemq"]
    said = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, cwd="/", capture_output=True, text=True, check=True
    )
    assert said.stdout == "of the tree\n"


def test_few_pairs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """They could show nothing."""
    with pytest.raises(SystemExit):
        compare.main(["HEAD", "--pairs", "4"])
    assert "write --pairs 5 or more" in capsys.readouterr().err


def test_a_trees_own_entry_points_are_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed package announces those of another commit."""
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "oncemq"\n[project.entry-points."oncemq.strategies"]\nnewest = "somewhere:Newest"\n'
    )
    monkeypatch.syspath_prepend(str(compare.announce(tmp_path)))
    assert [point.name for point in entry_points(group="oncemq.strategies")] == ["newest"]
