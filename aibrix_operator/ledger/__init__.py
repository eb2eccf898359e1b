"""The account of one card: who is promised what, how KV is divided, which Pod takes a claim.

Pure integer arithmetic, called by ``decide`` and by the simulation. No I/O, no clock, no framework.
"""
