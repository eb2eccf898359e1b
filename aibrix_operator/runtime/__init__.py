"""The sidecar in every warm Pod: starts engines, watches over them, and tells what they are and hold."""
