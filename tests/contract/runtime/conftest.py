"""One contract, two sidecars: every test of this folder runs against ours and against upstream's."""

import uuid

import pytest
from sidecar_process import SERVED, Sidecar, until, upstream_python


def pytest_collection_modifyitems(config, items):
    """Leave out, rather than skip, what a test marked ``only`` would ask of the sidecar that it is not about."""

    def is_meant(item):
        mark, call = item.get_closest_marker("only"), getattr(item, "callspec", None)
        return mark is None or call is None or call.params.get("sidecar") in (None, mark.args[0])

    left_out = [item for item in items if not is_meant(item)]
    if left_out:
        items[:] = [item for item in items if is_meant(item)]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session", params=["ours", "upstream"])
def sidecar(request, tmp_path_factory):
    """A running sidecar that all tests share; each uses models of its own."""
    if request.param == "upstream" and not upstream_python().exists():
        pytest.skip(
            f"upstream's sidecar is not installed at {upstream_python()} (requirements/upstream.lock, docs/runtime.md)"
        )
    instance = Sidecar(request.param, tmp_path_factory.mktemp(request.param))
    try:
        instance.start()
        yield instance
    finally:
        instance.end()


@pytest.fixture(scope="session")
def served_model(sidecar):
    """A model with claim and flags that tests share, since a boot takes longer than a test."""
    name = sidecar.own_name("served")
    sidecar.serve(name, **SERVED)
    return name


@pytest.fixture
def served(sidecar, served_model):
    """The shared model, active before and after the test."""
    until(lambda: sidecar.is_in(served_model, "active"), "the shared model is active")
    yield served_model
    sidecar.post("wake", model_name=served_model, operation_id=str(uuid.uuid4()))


@pytest.fixture
def model(request, sidecar):
    """A model name of this test's own; its engine is stopped afterwards."""
    name = sidecar.own_name(request.node.originalname.removeprefix("test_")[:40].rstrip("_"))
    yield name
    sidecar.post("deactivate", model_name=name)
