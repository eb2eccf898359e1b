"""The page in the operator's process, over what its controllers know."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aibrix_operator.controller.controller import Controller
from aibrix_operator.modelclaim.controller import ModelClaimController
from aibrix_operator.page.server import Page, parse_address
from aibrix_operator.page.sources import WorldSource

ALL = "all namespaces"


def pages(url: str | None, namespace: str | None) -> Callable[[Sequence[Controller]], Sequence[Page]]:
    """What the process is to serve at ``url``; nothing for None. ValueError for what is no address.

    ``namespace``: the one that the operator works on; None: all.
    """
    if url is None:
        return lambda _: ()
    address = parse_address(url)

    def of(controllers: Sequence[Controller]) -> Sequence[Page]:
        worlds = [one.world for one in controllers if isinstance(one, ModelClaimController)]
        return [Page(address, WorldSource(world), namespace or ALL) for world in worlds]

    return of
