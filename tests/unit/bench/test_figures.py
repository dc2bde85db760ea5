"""What the benchmark makes of what it measured."""

from typing import Any

from bench.compare import verdict
from bench.figures import Figure, Limit, Target, machine, merged, table


def a_figure(*rounds: float, limit: tuple[float, ...] = (), target: Target | None = None) -> Figure:
    return Figure(
        group="intake",
        name="32 connections",
        unit="posts/s",
        rounds=rounds,
        limit=Limit("parsing POST", limit) if limit else None,
        target=target,
    )


def test_a_figure_is_compared_with_its_limit_round_by_round() -> None:
    # a machine that was busy in the second round meets both
    assert a_figure(500, 50, 480, limit=(1_000, 100, 1_000)).ratios == (0.5, 0.5, 0.48)


def test_a_target_bounds_the_ratio_where_there_is_a_limit_and_the_figure_itself_where_there_is_none() -> None:
    assert a_figure(500, limit=(1_000,), target=Target(at_least=0.45)).is_reached is True
    assert a_figure(400, limit=(1_000,), target=Target(at_least=0.45)).is_reached is False
    assert a_figure(0.2, target=Target(at_most=0.3)).is_reached is True
    assert a_figure(0.2).is_reached is None


def test_the_table_shows_the_median_with_its_spread_and_what_was_missed() -> None:
    shown = table([a_figure(400, 300, 500, limit=(1_000, 1_000, 1_000), target=Target(at_least=0.45))])
    assert "400 (300 to 500) posts/s" in shown
    assert "≥ 0.45" in shown
    assert shown.endswith("MISSED")


def test_the_machine_is_described_without_saying_whose_it_is() -> None:
    assert machine().keys() == {"cpu", "cores", "memory_gb", "system", "python"}


def test_a_revision_is_better_only_where_no_round_of_one_reaches_into_the_other() -> None:
    before = [100.0, 110, 120, 105, 115]
    assert verdict(before, [130, 125, 140, 150, 121], higher_is_better=True) == "better"
    assert verdict(before, [130, 125, 140, 150, 121], higher_is_better=False) == "worse"
    assert verdict(before, [130, 125, 140, 150, 119], higher_is_better=True) == ""
    assert verdict(before[:2], [130, 140], higher_is_better=True) == ""


def test_a_group_that_was_run_again_takes_the_place_of_the_earlier_one_and_both_revisions_are_named() -> None:
    def run(revision: str, **groups: int) -> dict[str, Any]:
        figures = [{"group": group, "median": median} for group, median in groups.items()]
        return {"revision": revision, "figures": figures}

    both = merged([run("a", intake=1, jobs=2), run("b", jobs=3)])
    assert both["figures"] == [{"group": "intake", "median": 1}, {"group": "jobs", "median": 3}]
    assert both["revision"] == "a, b"
    assert merged([run("a", jobs=2), run("b", jobs=3)])["revision"] == "b"
