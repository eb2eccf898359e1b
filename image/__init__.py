"""The container image: its root file system, made the same way by the Dockerfile and on a machine without Docker."""
