"""Kubernetes' label selectors as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aibrix_operator.gateway import selectors

LABELS = {"zone": "a", "tier": "", "example.com/gpu": "h20", "cards": "8", "in": "x"}


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "zone=a", "zone==a", " zone = a ", "zone!=b", "absent!=b", "zone", "!absent", "! absent", "tier=",
        "tier= ,zone=a", "zone in (a,b)", "zone in ( b , a )", "zone notin (b,c)", "absent notin (a)", "tier in ()",
        "tier in (a,)", "cards>7", "cards<9", "example.com/gpu=h20", "zone=a,tier,!absent,cards>7", "in=x", "in in (x)",
    ],
)  # fmt: skip
def test_a_selector_that_fits(text):
    assert selectors.parse(text).matches(LABELS)


@pytest.mark.parametrize(
    "text",
    [
        "zone=b", "zone!=a", "absent", "!zone", "absent=", "zone in (b)", "zone in ()", "zone notin (a)", "cards>8",
        "cards<8", "zone>1", "absent<5", "zone=a,absent", "absent in (a)",
    ],
)  # fmt: skip
def test_a_selector_that_does_not_fit(text):
    assert not selectors.parse(text).matches(LABELS)


@pytest.mark.acceptance("GW-35")
@pytest.mark.parametrize(
    "text",
    [
        "zone==", "zone==,a", "zone=a=b", "zone===a", "=a", ",", "zone=a,", ",zone=a", "zone=a,,tier", "zone in a",
        "zone in (a", "zone in a)", "zone in", "zone notin", "zone a", "zone=a b", "!zone=a", "!", "zone>a", "zone>",
        "zone>=1", "zone=a||b=c", "-zone=a", "zone-=a", "zone=-a", f"{'k' * 64}=a", f"zone={'v' * 64}", "a/b/c=d",
        "/b=c", "A.com/b=c", "é=a", "zone=é", "zone in (a;b)", "(", "zone=a" + "," * 5000, "zone\x00=a",
    ],
)  # fmt: skip
def test_what_is_no_selector_is_said_so(text):
    with pytest.raises(selectors.SelectorError):
        selectors.parse(text)


@given(st.text(alphabet="ab=!,()<> in/.\té", max_size=30))
def test_any_text_is_a_selector_or_refused(text):
    try:
        found = selectors.parse(text)
    except selectors.SelectorError:
        return
    assert found.matches(LABELS) in (True, False)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"])), st.sampled_from(["x", "y", "z"]))
def test_each_operator_is_the_opposite_of_its_negation(labels, value):
    for yes, no in ((f"a={value}", f"a!={value}"), (f"a in ({value})", f"a notin ({value})"), ("a", "!a")):
        assert selectors.parse(yes).matches(labels) is not selectors.parse(no).matches(labels)
