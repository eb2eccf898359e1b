"""Real nodes for end-to-end tests: ``kind`` where Docker runs, else namespaces of this machine's kernel."""
