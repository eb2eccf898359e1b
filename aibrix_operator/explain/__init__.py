"""What an operator of a cluster looks at: why a claim waits, what a set of claims would come to, and the cards live.

Three commands over the controller's own pure code, so that what they print is what it decides. ``looking`` is the only
module with I/O; everything else turns a ``Fleet`` into a report and a report into text or JSON.
"""
