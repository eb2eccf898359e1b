"""Brings a model's or adapter's files from where they are published to a folder here. Knows no Kubernetes."""
