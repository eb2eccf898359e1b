"""One module an engine kind; ``catalog`` maps the API's engine names to them."""
