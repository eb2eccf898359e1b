"""How many requests run at each endpoint, and a model's least loaded, at a cost that does not grow with its Pods.

Counts are this replica's own leases plus what the other replicas tell of theirs.
"""

from __future__ import annotations

from random import Random

from aibrix_operator.gateway.view import Endpoint, Model


class Board:
    """One model's endpoints by their counts. ``total``, ``least`` and ``most`` are kept as counts change."""

    __slots__ = ("_by_count", "_counts", "_position", "least", "most", "total")

    def __init__(self, counts: dict[Endpoint, int]) -> None:
        self._counts = counts
        self._by_count: dict[int, list[Endpoint]] = {}
        self._position: dict[Endpoint, int] = {}
        self.total = 0
        for endpoint, count in counts.items():
            self._put(endpoint, count)
            self.total += count
        self.least = min(self._by_count, default=0)
        self.most = max(self._by_count, default=0)

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, endpoint: Endpoint) -> int:
        """Of an endpoint of this board."""
        return self._counts[endpoint]

    def draw_least(self, random: Random) -> Endpoint:
        """One of the least loaded, each as likely as the others. IndexError without endpoints."""
        level = self._by_count[self.least] if self._counts else []
        return level[int(random.random() * len(level))]

    def least_loaded(self) -> tuple[Endpoint, ...]:
        """All that have the least."""
        return tuple(self._by_count.get(self.least, ()))

    def best(self, most: int) -> list[Endpoint]:
        """So many of those that have the least, in order. The cost grows with ``most``, not with all there are."""
        out: list[Endpoint] = []
        for count in sorted(self._by_count):
            out += self._by_count[count][: most - len(out)]
            if len(out) >= most:
                break
        return out

    def change(self, endpoint: Endpoint, count: int) -> None:
        """``endpoint`` now has ``count``. Of moves by one, which requests make, the cost is constant."""
        before = self._counts[endpoint]
        if before == count:
            return
        level = self._by_count[before]
        last = level.pop()
        position = self._position.pop(endpoint)
        if last is not endpoint:
            level[position] = last
            self._position[last] = position
        if not level:
            del self._by_count[before]
        self._put(endpoint, count)
        self._counts[endpoint] = count
        self.total += count - before
        if count < self.least or self.least not in self._by_count:
            self.least = count if count < self.least or count == before + 1 else min(self._by_count)
        if count > self.most or self.most not in self._by_count:
            self.most = count if count > self.most or count == before - 1 else max(self._by_count)

    def _put(self, endpoint: Endpoint, count: int) -> None:
        level = self._by_count.setdefault(count, [])
        self._position[endpoint] = len(level)
        level.append(endpoint)


class Loads:
    """All counts, by ``Endpoint.key``."""

    def __init__(self) -> None:
        self._own: dict[str, int] = {}
        self._peers: dict[str, int] = {}
        self._boards: dict[str, tuple[Model, Board, dict[str, Endpoint]]] = {}
        self._models_of: dict[str, set[str]] = {}

    def count(self, endpoint: Endpoint) -> int:
        """Requests running there, of all replicas; never below 0."""
        return self._own.get(endpoint.key, 0) + self._peers.get(endpoint.key, 0)

    def own(self) -> dict[str, int]:
        """This replica's counts, those above 0."""
        return dict(self._own)

    def add(self, endpoint: Endpoint) -> None:
        """A request of ours begins there."""
        self._own[endpoint.key] = self._own.get(endpoint.key, 0) + 1
        self._changed(endpoint.key)

    def remove(self, endpoint: Endpoint) -> None:
        """A request of ours ended there. Each ``add`` is removed once."""
        left = self._own.get(endpoint.key, 0) - 1
        if left > 0:
            self._own[endpoint.key] = left
        else:
            self._own.pop(endpoint.key, None)
        self._changed(endpoint.key)

    def set_peers(self, counts: dict[str, int]) -> None:
        """What all other replicas together have running, ``Endpoint.key`` → count."""
        moved = {key for key in counts.keys() | self._peers.keys() if counts.get(key, 0) != self._peers.get(key, 0)}
        self._peers = {key: count for key, count in counts.items() if count > 0}
        for key in moved:
            self._changed(key)

    def board(self, model: Model) -> Board:
        """The board of ``model`` as it is now. Made anew when the model's endpoints changed."""
        kept = self._boards.get(model.name)
        if kept is not None and kept[0] is model:
            return kept[1]
        if kept is not None:
            self._forget(model.name, kept[0])
        board = Board({endpoint: self.count(endpoint) for endpoint in model.endpoints})
        self._boards[model.name] = (model, board, {endpoint.key: endpoint for endpoint in model.endpoints})
        for endpoint in model.endpoints:
            self._models_of.setdefault(endpoint.key, set()).add(model.name)
        return board

    def drop(self, name: str) -> None:
        """The model is gone."""
        kept = self._boards.pop(name, None)
        if kept is not None:
            self._forget(name, kept[0])

    def _forget(self, name: str, model: Model) -> None:
        for endpoint in model.endpoints:
            names = self._models_of.get(endpoint.key)
            if names is not None:
                names.discard(name)
                if not names:
                    del self._models_of[endpoint.key]

    def _changed(self, key: str) -> None:
        for name in self._models_of.get(key, ()):
            _, board, endpoints = self._boards[name]
            endpoint = endpoints[key]
            board.change(endpoint, self.count(endpoint))
