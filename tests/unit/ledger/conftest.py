"""Examples run before properties: they fail sooner, and are easier to read."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker("hypothesis") is not None)
