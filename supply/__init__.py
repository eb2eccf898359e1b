"""What we depend on: under which licences, and with which known holes. Called by ``make lint`` and by releases."""
