"""The operator process: it hosts the controllers of all kinds, and knows what each needs of the API server."""
