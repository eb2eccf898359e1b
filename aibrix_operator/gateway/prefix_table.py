"""Which engine has which blocks of prompts in its cache, as far as requests of late tell.

A block's engines are one integer, a bit an engine of the model. A hash stands for its whole prefix, and every addition
renews all blocks of its prompt, so an engine that has a block has those before it: a match looks at a few blocks and
not at each. Times are kept per addition: one ``_Use`` for all blocks that one request added or renewed, filed under
its second. Expiry and eviction take the oldest first, and of one request the end of its prompt first.

Blocks of a model are its own: their hashes begin with the model's name (``prefix_blocks.root``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from aibrix_operator.gateway.prefix_blocks import PrefixSettings
from aibrix_operator.gateway.prefix_figures import PrefixFigures
from aibrix_operator.gateway.view import Endpoint

NS = 1_000_000_000
_RENEWED_EACH_S = 60
"""A use that is younger is left as it is, so that a hot prompt costs little."""
_GONE_PER_SWEEP = 20_000
_MOST_HELD = 4
"""Engines a block that the memory is made for, on average: times the capacity in blocks."""


class _Seat:
    """One engine of one model. Its bit is used again when it has no blocks."""

    __slots__ = ("bit", "incarnation", "of", "uses")

    def __init__(self, seats: _Seats, incarnation: str, bit: int) -> None:
        self.of = seats
        self.incarnation = incarnation
        self.bit = bit
        self.uses: dict[int, _Use] = {}


class _Use:
    """One request's blocks at one engine. Those that a later request renewed are no longer this one's."""

    __slots__ = ("at_ns", "blocks", "seat")

    def __init__(self, seat: _Seat, at_ns: int, blocks: list[int]) -> None:
        self.seat = seat
        self.at_ns = at_ns
        self.blocks = blocks
        """From the prompt's begin to its end; taken off from the end, so that what stays is always a prefix."""


class _Seats:
    """One model's engines."""

    __slots__ = ("_placed", "by_bit", "by_incarnation", "free_bits", "model")

    def __init__(self, model: str) -> None:
        self.model = model
        self.by_incarnation: dict[str, _Seat] = {}
        self.by_bit: dict[int, _Seat] = {}
        self.free_bits: list[int] = []
        self._placed: tuple[Sequence[Endpoint], int, dict[int, int]] | None = None
        """What ``place`` found last: mostly a model's candidates are all its endpoints, which change rarely."""

    def place(self, candidates: Sequence[Endpoint]) -> tuple[int, dict[int, int]]:
        """Bits of those that have blocks, and bit → place among the candidates."""
        placed = self._placed
        if placed is None or placed[0] is not candidates:
            seated = [self.by_incarnation.get(endpoint.incarnation) for endpoint in candidates]
            places = {seat.bit: place for place, seat in enumerate(seated) if seat is not None}
            placed = (candidates, sum(places), places)
            if isinstance(candidates, tuple):
                self._placed = placed
        return placed[1], placed[2]

    def leave(self, seat: _Seat) -> None:
        """It matches nothing from now on. Its bit stays taken while blocks have it."""
        if self.by_incarnation.get(seat.incarnation) is seat:
            del self.by_incarnation[seat.incarnation]
            self._placed = None

    def seat(self, incarnation: str) -> _Seat:
        """The engine's; a new one when it has no blocks yet."""
        seat = self.by_incarnation.get(incarnation)
        if seat is None:
            bit = self.free_bits.pop() if self.free_bits else 1 << len(self.by_bit)
            seat = self.by_incarnation[incarnation] = self.by_bit[bit] = _Seat(self, incarnation, bit)
            self._placed = None
        return seat


class PrefixTable:
    """See the module. Nothing here waits; it is used from one thread."""

    def __init__(self, settings: PrefixSettings) -> None:
        self.settings = settings
        self.figures = PrefixFigures()
        """What came of looking into it."""
        self._models: dict[str, _Seats] = {}
        self._masks: dict[int, int] = {}
        """Block → bits of the engines of its model that have it; never 0."""
        self._home: dict[int, _Seats] | None = None
        """Block → its model's engines. Only where blocks are told to others."""
        self._held = 0
        """Blocks, each counted once for each engine that has it."""
        self._seconds: dict[int, deque[_Use]] = {}
        self._oldest_s = 0
        """No second before it has uses."""
        self._gone: list[_Seat] = []
        """Of Pods that were removed, and of engines that ended; ``sweep`` takes their blocks away."""
        self._ended_ns: dict[tuple[str, str], int] = {}
        """(model, incarnation) → when the engine lost its cache: what others tell of before then is over."""
        self._changed: Callable[[Sequence[int], Collection[int], int], None] | None = None
        self._learned: Callable[[str, str, int], None] | None = None

    def __len__(self) -> int:
        """Blocks, each counted once however many engines have it."""
        return len(self._masks)

    def tell_changes(self, changed: Callable[[Sequence[int], Collection[int], int], None]) -> None:
        """Call ``changed`` with the blocks of each addition, those of them that its engine had not had, and its time in
        nanoseconds. Before the first addition."""
        self._changed = changed
        self._home = {}

    def tell_learned(self, learned: Callable[[str, str, int], None]) -> None:
        """Call ``learned`` with model, incarnation and nanoseconds for each block that an engine had not had, and got
        from another gateway."""
        self._learned = learned

    def match(self, model: str, candidates: Sequence[Endpoint], blocks: Sequence[int], now_s: float) -> list[int]:
        """How many of ``blocks``, from the first on, each candidate has."""
        depths = [0] * len(candidates)
        self._expire(now_s)
        seats = self._models.get(model)
        if seats is None or not blocks:
            return depths
        live, places = seats.place(candidates)
        mask_of = self._masks.get
        first = live & mask_of(blocks[0], 0)
        if not first:
            return depths
        last = len(blocks) - 1
        end = first & mask_of(blocks[last], 0)
        reached = [(end, last + 1)] if end else []
        # Between two blocks with the same engines nothing is to be found; between others look in the middle.
        spans = [(0, last, first, end)] if end != first else []
        while spans:
            low, high, at_low, at_high = spans.pop()
            if high - low == 1:
                reached.append((at_low ^ at_high, high))
                continue
            middle = (low + high) >> 1
            at_middle = at_low & mask_of(blocks[middle], 0) | at_high
            if at_middle != at_low:
                spans.append((low, middle, at_low, at_middle))
            if at_middle != at_high:
                spans.append((middle, high, at_middle, at_high))
        for bits, depth in reached:
            while bits:
                bit = bits & -bits
                bits ^= bit
                depths[places[bit]] = depth
        return depths

    def add(self, model: str, endpoint: Endpoint, blocks: Sequence[int], now_s: float) -> None:
        """``endpoint`` serves, and then has, a prompt of ``blocks``."""
        if not blocks:
            return
        seat = self._seats(model).seat(endpoint.incarnation)
        at_ns = int(now_s * NS)
        # The last block is the oldest of them: what renewed it renewed those before it too.
        known = seat.uses.get(blocks[-1])
        if known is not None and known.at_ns > at_ns - self._renewed_each_ns(now_s):
            return
        use = _Use(seat, at_ns, list(blocks))
        new = () if self._changed is None else [block for block in blocks if block not in seat.uses]
        self._file(use)
        self._put(use, use.blocks)
        if self._changed is not None:
            self._changed(use.blocks, new, at_ns)
        self._evict()

    def learn(self, block: int, model: str, incarnation: str, at_ns: int, into: dict[tuple[int, int], object]) -> bool:
        """An engine had ``block`` at ``at_ns``, as another replica says. False: it is known to have it since later.

        ``into`` is empty at first and goes along with the blocks of one exchange: those of one request share a use.
        """
        home = None if self._home is None else self._home.get(block)
        if home is not None and home.model != model:
            return False
        if self._ended_ns and at_ns <= self._ended_ns.get((model, incarnation), 0):
            return False
        seat = (home or self._seats(model)).seat(incarnation)
        known = seat.uses.get(block)
        if known is not None and known.at_ns >= at_ns:
            return False
        use = into.get((id(seat), at_ns))
        if isinstance(use, _Use) and use.seat is seat and use.blocks:
            use.blocks.append(block)
        else:
            use = into[id(seat), at_ns] = _Use(seat, at_ns, [block])
            self._file(use)
        self._put(use, (block,))
        self._evict()
        if known is None and self._learned is not None:
            self._learned(model, incarnation, at_ns)
        return True

    def uses(self, block: int) -> tuple[str, dict[str, int]] | None:
        """The model of a block, and incarnation → when its engine last used it, in Unix nanoseconds. None: unknown."""
        seats = None if self._home is None else self._home.get(block)
        if seats is None:
            return None
        mask = self._masks.get(block, 0)
        found: dict[str, int] = {}
        while mask:
            bit = mask & -mask
            mask ^= bit
            seat = seats.by_bit.get(bit)
            use = None if seat is None else seat.uses.get(block)
            if use is not None and seats.by_incarnation.get(use.seat.incarnation) is seat:
                found[use.seat.incarnation] = use.at_ns
        return (seats.model, found) if found else None

    def blocks(self) -> list[int]:
        """All of them, as a copy."""
        return list(self._masks)

    def forget(self, uid: str) -> None:
        """The Pod is gone: from now on it matches nothing. ``sweep`` frees its memory."""
        ending = "#" + uid
        for seats in self._models.values():
            for seat in [seat for name, seat in seats.by_incarnation.items() if name.endswith(ending)]:
                seats.leave(seat)
                self._gone.append(seat)

    def forget_engine(self, model: str, incarnation: str, now_s: float) -> None:
        """The engine has lost its cache, and may come back. What others tell of its time before is not believed."""
        self._ended_ns[model, incarnation] = int(now_s * NS)
        seats = self._models.get(model)
        seat = None if seats is None else seats.by_incarnation.get(incarnation)
        if seats is not None and seat is not None:
            seats.leave(seat)
            self._gone.append(seat)

    def sweep(self, now_s: float) -> None:
        """Once a second: expire, and free what belonged to Pods that are gone, a part at a time."""
        self._expire(now_s)
        oldest_ns = int((now_s - self.settings.ttl_s) * NS)
        for engine in [engine for engine, at_ns in self._ended_ns.items() if at_ns < oldest_ns]:
            del self._ended_ns[engine]
        for _ in range(_GONE_PER_SWEEP):
            if not self._gone:
                return
            seat = self._gone[-1]
            if seat.uses:
                self._take(seat, next(reversed(seat.uses)))
            else:
                self._gone.pop()

    def _seats(self, model: str) -> _Seats:
        seats = self._models.get(model)
        if seats is None:
            seats = self._models[model] = _Seats(model)
        return seats

    def _is_full(self) -> bool:
        return len(self._masks) >= self.settings.capacity or self._held >= _MOST_HELD * self.settings.capacity

    def _renewed_each_ns(self, now_s: float) -> int:
        """Shorter while blocks are evicted soon after their last use, or the hottest would be evicted first."""
        if not self._is_full():
            return _RENEWED_EACH_S * NS
        return int(min(_RENEWED_EACH_S, max(0.0, now_s - self._oldest_s) / 8) * NS)

    def _file(self, use: _Use) -> None:
        second = use.at_ns // NS
        if not self._seconds or second < self._oldest_s:
            self._oldest_s = second
        uses = self._seconds.get(second)
        if uses is None:
            uses = self._seconds[second] = deque()
        uses.append(use)

    def _put(self, use: _Use, blocks: Sequence[int]) -> None:
        seat = use.seat
        bit, masks = seat.bit, self._masks
        before = len(seat.uses)
        seat.uses.update(dict.fromkeys(blocks, use))
        added = len(seat.uses) - before
        if not added:
            return
        self._held += added
        for block in blocks:
            mask = masks.get(block)
            if mask is None:
                masks[block] = bit
            elif not mask & bit:
                masks[block] = mask | bit
        if self._home is not None:
            self._home.update(dict.fromkeys(blocks, seat.of))

    def _expire(self, now_s: float) -> None:
        """Uses of a second end together, up to a second late."""
        last = int(now_s) - self.settings.ttl_s - 1
        while self._oldest_s <= last:
            if not self._seconds:
                return
            for use in self._seconds.pop(self._oldest_s, ()):
                self._end(use, len(use.blocks))
            self._oldest_s += 1

    def _evict(self) -> None:
        capacity = self.settings.capacity
        while (over := len(self._masks) - capacity) > 0 or self._held > _MOST_HELD * capacity:
            uses = self._seconds.get(self._oldest_s)
            if not uses:
                self._seconds.pop(self._oldest_s, None)
                self._oldest_s += 1
                continue
            use = uses[0]
            self._end(use, max(over, 1))
            if not use.blocks:
                uses.popleft()

    def _end(self, use: _Use, most: int) -> None:
        """The last ``most`` blocks of ``use``, those that were renewed since excepted."""
        ended = use.blocks[-most:]
        del use.blocks[-most:]
        use_of = use.seat.uses.get
        for block in reversed(ended):
            if use_of(block) is use:
                self._take(use.seat, block)

    def _take(self, seat: _Seat, block: int) -> None:
        del seat.uses[block]
        self._held -= 1
        # Two models' blocks with one hash, which a client may have sought, share a mask: it may be gone already.
        left = self._masks.get(block, 0) & ~seat.bit
        if left:
            self._masks[block] = left
        else:
            self._masks.pop(block, None)
            if self._home is not None:
                self._home.pop(block, None)
        if seat.uses:
            return
        seats = seat.of
        seats.leave(seat)
        del seats.by_bit[seat.bit]
        seats.free_bits.append(seat.bit)
        if not seats.by_bit:
            self._models.pop(seats.model, None)
