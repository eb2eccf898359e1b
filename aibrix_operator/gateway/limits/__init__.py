"""What users, models and engines may have: reserved before a request is forwarded, settled when it has ended."""
