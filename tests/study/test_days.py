"""Two weeks of jobs on fabrics: `rfabric reproduce days`."""

import json

import pytest

from rfabric.cli import main
from rfabric.cli.reproducing import page
from rfabric.study import days
from rfabric.study.days import BY_NUMBER, PODS, days_of, days_table, row_of_days

THIN = "two-clusters,join=20Gbit/s"


def few(case, count=8):
    return days_of(case, 0, count)


def test_the_same_jobs_with_the_same_work_come_to_each_fabric():
    jobs = few("flat").jobs
    shorter = few("flat, short").jobs
    assert [job.arrival for job in jobs] == [job.arrival for job in shorter]
    assert [job.seconds for job in jobs] == pytest.approx([job.seconds for job in shorter])
    assert all(a.profile.roll > b.profile.roll for a, b in zip(jobs, shorter, strict=True))


def test_a_slower_join_costs_and_keeps_less_of_what_cards_would_keep():
    some = few("flat, short", 40)
    ideal, thin = (row_of_days(some, "flat, short", spec) for spec in ("ideal", THIN))
    assert ideal.over_ideal == 1 and ideal.otherwise == 0 and ideal.slo_by_cards_share == 1
    assert thin.sync_s > ideal.sync_s and thin.at_once > ideal.at_once
    assert thin.usd > ideal.usd and thin.slo_by_cards_share < 1
    assert ideal.slo_share == thin.slo_share == 1
    assert thin.sync_share == pytest.approx(thin.sync_s / 200, rel=0.5)


def test_where_servers_stand_is_told_apart():
    """As the fabric answers, no job is later than by number."""
    near, by_number = (
        row_of_days(few("scatter"), "scatter", "mixnet", where) for where in (PODS, BY_NUMBER)
    )
    assert near.sync_s <= by_number.sync_s
    assert near.to_json()["where"] == "pods"


def test_the_verb(monkeypatch, capsys):
    monkeypatch.setattr(days, "days_of", lambda case, seed: few(case, 6))
    monkeypatch.setattr(days, "FABRICS", ("ideal", THIN))
    monkeypatch.setattr(days, "MIXED_FABRICS", ("fat-tree,oversubscription=4",))
    assert main(["reproduce", "days", "-q", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["where"] for row in rows[-2:]] == [PODS, BY_NUMBER] and len(rows) == 8
    assert main(["reproduce", "days", "-q"]) == 0
    assert THIN in capsys.readouterr().out
    assert main(["reproduce", "days", "-q", "--markdown"]) == 0
    assert "## days" in capsys.readouterr().out
    assert main(["reproduce", "days", "-q", "--experiment", "any"]) == 2
    assert "days has no experiment 'any'" in capsys.readouterr().err


def test_the_page_has_a_cell_for_each_column():
    lines = list(page("days", 0, days_table([row_of_days(few("scatter"), "scatter", THIN)])))
    assert len({line.count("|") for line in lines if "|" in line}) == 1
