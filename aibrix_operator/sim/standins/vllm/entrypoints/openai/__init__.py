"""The OpenAI server's entry point."""
