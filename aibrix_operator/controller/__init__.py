"""The frame that controllers are built in: what a process asks of one, and the one loop of all kinds with a pass per
object. It knows no kind."""
