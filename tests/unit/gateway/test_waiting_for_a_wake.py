"""Requests that are held until their model is awake."""

import asyncio

import pytest
from gateway_asks import model, profile, sleeping, view
from gateway_exchanges import Gateway, SlowLimiter, status, told, user

from aibrix_operator.gateway.waiting_room import WaitingRoom

WAITING = profile(wakeWaitSeconds=30)


async def settle():
    """Let what can go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_request_waits_for_its_model_and_is_answered():
    gateway = Gateway(view(sleeping(config=WAITING)))
    asking = [gateway.asking() for _ in range(3)]
    await settle()
    assert (len(gateway.watching.woken), gateway.room.waiting("m")) == (3, 3)
    gateway.now_s += 4
    gateway.change(model(pods=3, config=WAITING))
    answers = [await each for each in asking]
    assert sorted(told(answer)["target-pod"] for answer in answers) == ["p0000", "p0001", "p0002"]
    assert len(gateway.room) == 0
    assert gateway.watching.times == [0.0] * 3


async def test_a_model_that_is_still_on_its_way_is_waited_for_on():
    gateway = Gateway(view(sleeping(config=WAITING)))
    asking = gateway.asking()
    await settle()
    gateway.change(sleeping(config=WAITING, state="activating", wake=False))
    await settle()
    assert not asking.done()
    gateway.change(model(config=WAITING))
    assert status(await asking) == 200


async def test_a_model_that_fails_meanwhile_is_told_at_once():
    gateway = Gateway(view(sleeping(config=WAITING)))
    asking = gateway.asking()
    await settle()
    gateway.change(sleeping(config=WAITING, state="failed", reason="EngineFailed", wake=False))
    answer = await asking
    assert status(answer) == 503
    assert b"is failed (EngineFailed)" in answer.body


async def test_a_model_that_is_gone_meanwhile_is_told_so():
    gateway = Gateway(view(sleeping(config=WAITING)))
    asking = gateway.asking()
    await settle()
    del gateway.view.models["m"]
    gateway.room.model_changed("m")
    assert status(await asking) == 400


async def test_when_the_time_is_over_the_answer_is_the_one_without_waiting():
    gateway = Gateway(view(sleeping(config=profile(wakeWaitSeconds=0.01))))
    answer = await gateway.asking()
    assert (status(answer), told(answer)["retry-after"]) == (503, "10")
    assert len(gateway.room) == 0


async def test_a_user_over_the_limit_wakes_nothing_and_is_told_at_once():
    gateway = Gateway(view(sleeping(config=WAITING)), users=[user(rpm=1)])
    held = gateway.asking(user="ann")
    await settle()
    refused = gateway.ask(user="ann")
    assert (status(refused), len(gateway.watching.woken), gateway.room.waiting("m")) == (429, 1, 1)
    gateway.change(model(config=WAITING))
    assert status(await held) == 200


@pytest.mark.parametrize("comes", [True, False], ids=["served", "not served in time"])
async def test_a_request_that_was_held_is_one_request_of_its_user(comes):
    config = WAITING if comes else profile(wakeWaitSeconds=0.01)
    gateway = Gateway(view(sleeping(config=config)), users=[user(rpm=2)])
    held = gateway.asking(user="ann")
    await settle()
    if comes:
        gateway.change(model(config=config))
    assert status(await held) == (200 if comes else 503)
    gateway.change(model(config=config))
    assert [status(gateway.ask(user="ann")) for _ in range(2)] == [200, 429]


async def test_a_model_that_woke_while_a_user_was_looked_at_is_not_waited_for():
    limiter = SlowLimiter()
    limiter.gate.clear()
    gateway = Gateway(view(sleeping(config=WAITING)), users=[user(rpm=1)], limiter=limiter)
    asking = gateway.asking(user="ann")
    await limiter.asked.wait()
    gateway.change(model(config=WAITING))
    limiter.gate.set()
    assert status(await asking) == 200
    assert gateway.watching.woken == []


async def test_changes_do_not_make_the_time_longer():
    gateway = Gateway(view(sleeping(config=WAITING)))
    asking = gateway.asking()
    await settle()
    gateway.now_s += 30
    gateway.change(sleeping(config=WAITING))
    assert status(await asking) == 503


async def test_the_gateway_bounds_every_wait():
    gateway = Gateway(view(sleeping(config=profile(wakeWaitSeconds=1e9))), room=WaitingRoom(0.01))
    assert status(await gateway.asking()) == 503


async def test_only_so_many_wait_for_one_model_and_in_all():
    room = WaitingRoom(600.0, most_per_model=2, most_whole=3)
    gateway = Gateway(view(*(sleeping(name, config=WAITING) for name in "abc")), room=room)
    held = [gateway.asking(ask_for(name)) for name in "aab"]
    await settle()
    assert status(gateway.ask(ask_for("a"))) == 503
    assert status(gateway.ask(ask_for("b"))) == 503
    assert status(gateway.ask(ask_for("c"))) == 503
    assert len(room) == 3
    gateway.change(model("b"))
    assert status(await held[2]) == 200
    held.append(gateway.asking(ask_for("c")))
    assert len(room) == 3
    await settle()
    for each in (held[0], held[1], held[3]):
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    assert len(room) == 0


def ask_for(name):
    return {"model": name, "messages": [{"content": "x"}]}


async def test_who_gives_up_leaves_its_seat():
    gateway = Gateway(view(sleeping(config=WAITING)))
    asking = gateway.asking()
    await settle()
    asking.cancel()
    await asyncio.sleep(0)
    assert (len(gateway.room), len(gateway.leases)) == (0, 0)
    gateway.change(model())


async def test_who_gives_up_before_waiting_leaves_its_seat():
    gateway = Gateway(view(sleeping(config=WAITING)))
    answer = gateway.later()
    assert len(gateway.room) == 1
    answer.cancel()
    await asyncio.sleep(0)
    assert len(gateway.room) == 0


async def test_a_change_between_the_decision_and_the_wait_is_not_missed():
    gateway = Gateway(view(sleeping(config=WAITING)))
    asking = gateway.asking()
    # The task has not run yet: the change comes before it awaits anything.
    gateway.change(model(config=WAITING))
    assert status(await asking) == 200


async def test_a_held_request_is_charged_once_when_it_goes_on():
    gateway = Gateway(view(sleeping(config=WAITING)), users=[user(rpm=1)], limiter=SlowLimiter())
    asking = gateway.asking(user="ann")
    await settle()
    gateway.change(model(config=WAITING))
    assert told(await asking)["x-update-rpm"] == "1"
    assert status(await gateway.asking(user="ann")) == 429


async def test_a_model_without_wait_in_its_profile_is_refused_at_once():
    assert status(Gateway(view(sleeping())).ask()) == 503
