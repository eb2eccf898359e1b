"""What sharing state costs Redis, and how soon a replica knows what another learned."""
