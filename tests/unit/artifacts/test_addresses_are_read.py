"""Which addresses are known, and what a wrong one is told."""

import pytest

from aibrix_operator.artifacts.address import Address, Origin, parse_address, shown
from aibrix_operator.artifacts.errors import AddressError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("huggingface://org/name", Address(Origin.HUB, "org/name"), id="hub"),
        pytest.param("hf://org/name@v1.0", Address(Origin.HUB, "org/name", "v1.0"), id="hub with a revision"),
        pytest.param("huggingface://gpt2", Address(Origin.HUB, "gpt2"), id="hub without an organisation"),
        pytest.param("s3://bucket/a/b/", Address(Origin.S3, "bucket", "a/b"), id="s3 with a slash at the end"),
        pytest.param("s3://bucket", Address(Origin.S3, "bucket"), id="a whole bucket"),
        pytest.param("gcs://bucket/a", Address(Origin.GCS, "bucket", "a"), id="gcs"),
        pytest.param("gs://bucket/a", Address(Origin.GCS, "bucket", "a"), id="gs"),
        pytest.param("tos://bucket/a", Address(Origin.TOS, "bucket", "a"), id="tos"),
        pytest.param("https://h/a.bin?sig=x", Address(Origin.WEB, "https://h/a.bin?sig=x"), id="web"),
        pytest.param("/models/a", Address(Origin.LOCAL, "/models/a"), id="path"),
    ],
)
def test_an_address_is_read(url, expected):
    assert parse_address(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "", "aabbcc", "hugingface://org/name", "ms://org/name", "huggingface://", "hf://a/b/c", "hf://../b", "s3://",
        "s3:///a", "https://", "https:///a", "https://host/", "https://[half/a", "relative/path",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_words(url):
    with pytest.raises(AddressError, match=r"cannot be fetched|names no|no address"):
        parse_address(url)


def test_a_shown_address_carries_no_secret():
    assert shown("https://user:word@host:8/a?X-Amz-Signature=s#f") == "https://host:8/a"
    assert shown("/models/a") == "/models/a"
    assert shown("https://[half") == "(no address)"
