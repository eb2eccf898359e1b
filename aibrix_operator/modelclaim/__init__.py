"""The ModelClaim controller: observe, decide, act."""
