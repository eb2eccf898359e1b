"""The contract with users: kinds, condition reasons, label and annotation names. Imports nothing that does I/O."""
