"""Short ways to say a card and who is on it, and hypothesis strategies for both."""

from hypothesis import strategies as st

from aibrix_operator.ledger.card import Activity, Card, Occupant, Seat
from aibrix_operator.ledger.placement import Candidate, Obstacle, ObstacleKind

GIB = 1 << 30
MIB = 1 << 20


def serving(claim, footprint, floor, *, mapped=0, requests=0):
    return Occupant(claim, Seat(footprint, floor), mapped, Activity.SERVING, requests)


def starting(claim, footprint, floor, *, mapped=0):
    return Occupant(claim, Seat(footprint, floor), mapped)


def asleep(claim, footprint, floor, *, mapped=0, lent=None):
    return Occupant(claim, Seat(footprint, floor), mapped, Activity.ASLEEP, 0, lent)


def card(usable, *occupants, reserved=0, pod="pod-a"):
    return Card(pod, usable, occupants, reserved)


claim_names = st.sampled_from([f"claim-{letter}" for letter in "abcdefgh"])


def sizes(low, high, unit):
    """Multiples of ``unit`` bytes: 1 where the odd byte matters, a part of a GiB where messages must differ."""
    return st.integers(low, high).map(lambda size: size * unit)


def seats(unit=1):
    return st.builds(Seat, footprint_bytes=sizes(1, 400, unit), kv_floor_bytes=sizes(1, 100, unit))


@st.composite
def occupants(draw, claim=None, unit=1):
    """One instance in any state that a reading can show."""
    activity = draw(st.sampled_from(Activity))
    return Occupant(
        claim=draw(claim_names) if claim is None else claim,
        seat=draw(seats(unit)),
        kv_mapped_bytes=draw(sizes(0, 300, unit)),
        activity=activity,
        requests=draw(st.none() | st.integers(0, 9)),
        lent_footprint_bytes=draw(st.none() | sizes(1, 600, unit)) if activity is Activity.ASLEEP else None,
    )


@st.composite
def cards(draw, pod="pod-a", unit=1):
    """A card with up to six instances, with room or overdrawn."""
    names = draw(st.lists(claim_names, unique=True, max_size=6))
    on_it = tuple(draw(occupants(claim=name, unit=unit)) for name in names)
    return Card(pod, draw(sizes(0, 3000, unit)), on_it, draw(st.sampled_from([0, 0, 1, 150])) * unit)


obstacles = st.builds(
    Obstacle, kind=st.sampled_from(ObstacleKind), text=st.sampled_from(["it does not answer", "a limit did not hold"])
)


@st.composite
def candidate_lists(draw, unit=1):
    """Up to six Pods under different names; few distinct figures, so that ties are common."""
    pods = draw(st.lists(st.sampled_from([f"pod-{letter}" for letter in "abcdef"]), unique=True, max_size=6))
    few = st.integers(0, 2)
    return [
        Candidate(
            pod=pod,
            card=draw(st.none() | cards(pod=pod, unit=unit)),
            obstacle=draw(st.none() | st.none() | obstacles),
            artifact_cached=draw(st.booleans()),
            state_known=draw(st.booleans()),
            memory_known=draw(st.booleans()),
            engines_awake=draw(few),
            free_bytes=draw(few),
            kv_used_bytes=draw(few),
            engines=draw(few),
            instances=draw(few),
        )
        for pod in pods
    ]
