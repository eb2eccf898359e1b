"""Who a user is: records, the file that holds them, and what an unknown one is answered."""

import json
import time

import pytest
from traffic_builders import user

from aibrix_operator.gateway.limits.user_file import FileUsers
from aibrix_operator.gateway.limits.users import BadRecordError, Mode, Policy, StoreAwayError, Users, user_of
from aibrix_operator.gateway.verdict import Refuse


@pytest.mark.acceptance("GW-77")
@pytest.mark.parametrize(
    ("record", "rpm", "tpm"),
    [
        pytest.param({"rpm": 0, "tpm": 0}, 100, 100_000, id="zeros"),
        pytest.param({}, 100, 100_000, id="absent"),
        pytest.param({"rpm": 7}, 7, 7000, id="tpm-follows-rpm"),
        pytest.param({"tpm": 5}, 100, 5, id="tpm-alone"),
        pytest.param({"rpm": None, "tpm": 5}, 100, 5, id="null"),
    ],
)
def test_a_limit_of_0_is_its_default(record, rpm, tpm):
    assert user_of({"name": "ann", **record}) == user("ann", rpm, tpm)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        pytest.param("ann", "found str", id="no-mapping"),
        pytest.param({}, "found None", id="no-name"),
        pytest.param({"name": ""}, "found ''", id="empty-name"),
        pytest.param({"name": "ann", "rpm": -1}, "rpm is a whole number of at least 0, found -1", id="negative"),
        pytest.param({"name": "ann", "tpm": "9"}, "tpm is a whole number of at least 0, found '9'", id="text"),
        pytest.param({"name": "ann", "rpm": True}, "found True", id="bool"),
    ],
)
def test_a_record_that_is_no_user_says_why(record, told):
    with pytest.raises(BadRecordError, match=told):
        user_of(record)


ANN = {"name": "ann", "rpm": 5, "tpm": 50}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps([ANN]), id="json-list"),
        pytest.param(json.dumps({"users": [ANN]}), id="json-under-users"),
        pytest.param("users:\n- {name: ann, rpm: 5, tpm: 50}\n", id="yaml"),
    ],
)
def test_a_file_of_users_is_yaml_or_json(tmp_path, text):
    path = tmp_path / "users"
    path.write_text(text)
    users = FileUsers(path)
    assert users.get("ann") == user("ann", 5, 50)
    assert users.get("bob") is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="neither"),
        pytest.param("users: 3", id="no-list"),
        pytest.param("[{name: ann}, {name: ann}]", id="twice"),
        pytest.param("[{rpm: 3}]", id="nameless"),
        pytest.param("\x00", id="binary"),
    ],
)
def test_a_file_that_is_no_list_of_users_stops_the_start(tmp_path, text):
    path = tmp_path / "users"
    path.write_text(text)
    with pytest.raises(BadRecordError):
        FileUsers(path)


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def until(true, within_s=20.0):
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)  # another thread reads the file


def test_a_file_that_changes_is_read_again_and_one_that_turns_bad_is_not_used(tmp_path):
    path, clock = tmp_path / "users", Clock()
    path.write_text("[{name: ann, rpm: 5}]")
    users = FileUsers(path, clock)

    def replace(text):
        (tmp_path / "next").write_text(text)
        (tmp_path / "next").rename(path)
        clock.now_s += 2

    replace("[{name: ann, rpm: 6}, {name: bob}]")
    until(lambda: users.get("ann").rpm == 6)
    assert users.get("bob") == user("bob")
    replace("[{name: ann, rpm: -1}]")
    users.get("ann")
    until(lambda: users.error is not None)
    assert users.get("ann").rpm == 6
    replace("[{name: ann, rpm: 7}]")
    until(lambda: users.get("ann").rpm == 7)
    assert users.error is None
    path.unlink()
    clock.now_s += 2
    assert users.get("ann").rpm == 7
    assert "No such file" in users.error


class Known:
    """Answers at once, or later, or not at all."""

    def __init__(self, *known, later=False, away=False):
        self._known = {one.name: one for one in known}
        self._later, self._away = later, away
        self.asked = []

    def get(self, name):
        self.asked.append(name)
        if self._later:
            return self._awaited(name)
        return self._found(name)

    async def _awaited(self, name):
        return self._found(name)

    def _found(self, name):
        if self._away:
            raise StoreAwayError
        return self._known.get(name)


async def resolved(users, name):
    found = users.resolve(name)
    return found if found is None or isinstance(found, Refuse | type(user())) else await found


@pytest.mark.parametrize("later", [False, True], ids=["at-once", "later"])
async def test_an_unknown_user_is_served_or_refused_by_the_mode(later):
    store = Known(user("ann"), later=later)
    optional, require = (Users(store, mode, Policy.LOCAL) for mode in Mode)
    assert await resolved(optional, "ann") == await resolved(require, "ann") == user("ann")
    assert await resolved(optional, "bob") is None
    refused = await resolved(require, "bob")
    assert (refused.status, refused.headers) == (401, {"x-error-user": "true"})
    assert await resolved(optional, None) is None
    assert (await resolved(require, None)).status == 401


@pytest.mark.acceptance("GW-78")
@pytest.mark.parametrize("later", [False, True], ids=["at-once", "later"])
@pytest.mark.parametrize("mode", Mode)
async def test_while_the_store_is_away_users_are_served_without_limits_or_told_to_come_back(mode, later):
    store = Known(later=later, away=True)
    assert await resolved(Users(store, mode, Policy.OPEN), "ann") is None
    assert await resolved(Users(store, mode, Policy.LOCAL), "ann") is None
    refused = await resolved(Users(store, mode, Policy.CLOSED), "ann")
    assert (refused.status, refused.retry_after_s) == (503, 1)


async def test_no_store_is_asked_for_a_name_that_is_too_long():
    store = Known()
    users = Users(store, Mode.REQUIRE, Policy.LOCAL)
    assert (await resolved(users, "é" * 129)).status == 401
    assert store.asked == []
    await resolved(users, "é" * 128)
    assert store.asked == ["é" * 128]
