"""Chaos in the sandbox: real processes are killed at random while clients ask every model. See ``docs/sandbox.md``."""
