"""Random schedules: whatever happens to operators, calls and nodes, the laws hold, and all comes to rest."""

import logging
import os
from dataclasses import replace

import pytest
from warmup_schedule import FAULTS, play

from aibrix_operator.controller.steps import Create, Patch, Plan, SetStatus
from aibrix_operator.modelwarmup import decide, job, targets
from aibrix_operator.sim.world import LawBroken

SEEDS = range(int(os.environ.get("AIBRIX_WARMUP_SEEDS", "30")))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_laws_hold_in_every_schedule(seed, caplog):
    caplog.set_level(logging.ERROR, "aibrix_operator")
    assert play(seed) == FAULTS
    assert not [record.getMessage() for record in caplog.records]


def one_too_many(monkeypatch):
    """A Job that is being made takes no capacity yet."""
    creates = decide._creates

    def plan(warmup, *rest):
        generous = warmup.spec.effective_policies.model_copy(
            update={"parallelism": warmup.spec.effective_policies.parallelism + 1}
        )
        spec = warmup.spec.model_copy(update={"policies": generous})
        return creates(replace(warmup, spec=spec), *rest)

    monkeypatch.setattr(decide, "_creates", plan)


def every_node(monkeypatch):
    """Labels are not looked at."""
    monkeypatch.setattr(targets, "is_authorized", lambda labels, pool: True)


def time_to_live_at_once(monkeypatch):
    """Jobs are made with a time to live."""
    make = job.job_of

    def job_of(*of):
        made = make(*of)
        made["spec"]["ttlSecondsAfterFinished"] = 1
        return made

    monkeypatch.setattr(decide, "job_of", job_of)


def _planning(monkeypatch, change):
    plan_as_it_is = decide.decide

    def plan(warmup, memory, now):
        made, memory = plan_as_it_is(warmup, memory, now)
        return replace(made, steps=tuple(filter(None, (change(warmup, step) for step in made.steps)))), memory

    monkeypatch.setattr(decide, "decide", plan)


def no_time_to_live(monkeypatch):
    """Jobs of a warmup that is over stay for ever."""
    _planning(monkeypatch, lambda warmup, step: None if isinstance(step, Patch) else step)


def no_end(monkeypatch):
    """What is over begins again when a Job vanishes."""
    plan_as_it_is = decide.decide

    def plan(warmup, memory, now):
        again = warmup.status.model_copy(update={"phase": None})
        made, memory = plan_as_it_is(replace(warmup, status=again), memory, now)
        return Plan(tuple(s for s in made.steps if isinstance(s, Create | SetStatus))), memory

    monkeypatch.setattr(decide, "decide", plan)


@pytest.mark.parametrize("plant", [one_too_many, every_node, time_to_live_at_once, no_time_to_live, no_end])
def test_a_planted_fault_is_found_within_ten_seeds(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises((LawBroken, AssertionError)):  # noqa: PT012  # the first seed that finds it ends the loop
        for seed in range(10):
            play(seed)
