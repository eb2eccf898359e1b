"""Wrong accounts, divisions and placements: the pure figures."""

from planting import Fault

CARD, DIVISION, PLACEMENT = "ledger.card", "ledger.division", "ledger.placement"

FAULTS = (
    Fault(
        "an engine may be cut below what it maps",
        CARD,
        "return max(self.seat.kv_floor_bytes, self.kv_mapped_bytes)",
        "return self.seat.kv_floor_bytes",
    ),
    Fault(
        "an engine may be cut below its floor",
        CARD,
        "return max(self.seat.kv_floor_bytes, self.kv_mapped_bytes)",
        "return self.kv_mapped_bytes",
    ),
    Fault(
        "what is held leaves the footprint out",
        CARD,
        "return self.seat.footprint_bytes + self.keep_bytes",
        "return self.keep_bytes",
    ),
    Fault(
        "a seat is its footprint, without the floor",
        CARD,
        "return self.footprint_bytes + self.kv_floor_bytes",
        "return self.footprint_bytes",
    ),
    Fault(
        "a sleeper that lent its seat is charged nothing",
        CARD,
        "self.keep_bytes\n        return self.lent_footprint_bytes",
        "self.keep_bytes\n        return 0",
    ),
    Fault(
        "a sleeper without wake reserve keeps its floor",
        CARD,
        "            return max(self.seat.kv_floor_bytes, self.kv_mapped_bytes)\n        return self.kv_mapped_bytes",
        "            return max(self.seat.kv_floor_bytes, self.kv_mapped_bytes)\n        return "
        "self.seat.kv_floor_bytes",
    ),
    Fault(
        "sleepers get a share of the spare KV",
        CARD,
        "            return 0\n        if self.activity is Activity.STARTING",
        "            return 1\n        if self.activity is Activity.STARTING",
    ),
    Fault(
        "a claim is charged twice when it is charged anew",
        CARD,
        "others = tuple(o for o in self.occupants if o.claim != occupant.claim)",
        "others = self.occupants",
    ),
    Fault(
        "a full card cannot be divided",
        DIVISION,
        "if spare_bytes < 0:",
        "if spare_bytes <= 0:",
    ),
    Fault(
        "a plan begins at the floors, whatever is mapped",
        DIVISION,
        "limits = {o.claim: o.keep_bytes for o in card.occupants}",
        "limits = {o.claim: o.seat.kv_floor_bytes for o in card.occupants}",
    ),
    Fault(
        "one odd byte too many is dealt",
        DIVISION,
        "1 if place < odd_bytes else 0",
        "1 if place <= odd_bytes else 0",
    ),
    Fault(
        "shares are rounded up",
        DIVISION,
        "shares = {claim: spare_bytes * weight // total_weight",
        "shares = {claim: -(-spare_bytes * weight // total_weight)",
    ),
    Fault(
        "room that exactly fits is refused",
        PLACEMENT,
        "if c.largest_seat_bytes >= need_bytes]",
        "if c.largest_seat_bytes > need_bytes]",
    ),
    Fault(
        "room that engines hold is taken for free",
        PLACEMENT,
        "return min(c.card.room_ever_bytes, c.card.room_now_bytes)",
        "return c.card.room_ever_bytes",
    ),
    Fault(
        "an engine keeps the lesser of floor and mapped KV",
        CARD,
        "return max(self.seat.kv_floor_bytes, self.kv_mapped_bytes)",
        "return min(self.seat.kv_floor_bytes, self.kv_mapped_bytes)",
    ),
    Fault(
        "a seat is its floor, without the footprint",
        CARD,
        "return self.footprint_bytes + self.kv_floor_bytes",
        "return self.kv_floor_bytes",
    ),
    Fault(
        "every share is a byte too large",
        DIVISION,
        "limits[claim] += share + (",
        "limits[claim] += 1 + share + (",
    ),
    Fault(
        "everybody gets an odd byte",
        DIVISION,
        "odd_bytes = spare_bytes - sum(shares.values())",
        "odd_bytes = len(shares)",
    ),
    Fault(
        "the spare is a byte larger than it is",
        DIVISION,
        "spare_bytes = card.room_now_bytes",
        "spare_bytes = card.room_now_bytes + 1",
    ),
    Fault(
        "KV that engines hold beyond their floors is dealt again",
        DIVISION,
        "spare_bytes = card.room_now_bytes",
        "spare_bytes = card.room_ever_bytes",
    ),
    Fault(
        "a claim is placed where its footprint fits",
        PLACEMENT,
        "need_bytes = seat.total_bytes",
        "need_bytes = seat.footprint_bytes",
    ),
    Fault(
        "everybody keeps a byte more than is held for it",
        DIVISION,
        "o.claim: o.keep_bytes for o in card.occupants",
        "o.claim: o.keep_bytes + 1 for o in card.occupants",
    ),
    Fault(
        "every share is rounded to the next byte",
        DIVISION,
        "spare_bytes * weight // total_weight",
        "(spare_bytes * weight + total_weight) // total_weight",
    ),
    Fault(
        "a card has a byte more room than it has",
        CARD,
        '"room_now_bytes", self.usable_bytes - held_bytes - self.reserved_bytes',
        '"room_now_bytes", self.usable_bytes - held_bytes - self.reserved_bytes + 1',
    ),
    Fault(
        "the first engine of a card is left out of the sum",
        CARD,
        "sum(o.held_bytes for o in ordered)",
        "sum(o.held_bytes for o in ordered[1:])",
    ),
    Fault(
        "every Pod has room",
        PLACEMENT,
        "if c.largest_seat_bytes >= need_bytes]",
        "if True]",
    ),
)
