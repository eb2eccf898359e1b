"""Multipart forms: the two fields that routing reads. A file is walked over, never copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

FORM_TYPE: Final = "multipart/form-data"
MOST_PARTS: Final = 1000
"""Of one form. Many tiny parts would cost far more time than their bytes."""
LONGEST_FIELD_BYTES: Final = 4096
_READ: Final = frozenset({b"model", b"stream"})


class FormError(ValueError):
    """No form, or one that its engine may read otherwise than we did. The text tells the client why."""


@dataclass(frozen=True, slots=True)
class Form:
    """What was said of each; None: nothing."""

    model: str | None
    stream: str | None


def parse(content_type: str, body: bytes) -> Form:
    """The fields of a whole form. Raises FormError."""
    try:
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if not boundary:
            raise FormError("the content-type names no boundary")
        fields = _Fields()
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": fields.part_begins,
                "on_header_field": fields.header_name_goes_on,
                "on_header_value": fields.header_value_goes_on,
                "on_header_end": fields.header_ends,
                "on_headers_finished": fields.headers_end,
                "on_part_data": fields.data_goes_on,
                "on_end": fields.form_ends,
            },
        )
        parser.write(body)
        parser.finalize()
        fields.check_is_whole()
        return Form(fields.text(b"model"), fields.text(b"stream"))
    except FormParserError:
        raise FormError("the multipart form cannot be parsed") from None
    except UnicodeError:
        raise FormError("the multipart form is no UTF-8") from None


class _Fields:
    """Listens to the parser. A header or value may come in pieces."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytearray] = {}
        self._parts = 0
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._disposition = ""
        self._current: bytearray | None = None
        self._is_whole = False

    def part_begins(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise FormError(f"a multipart form may have at most {MOST_PARTS} parts")
        self._disposition = ""
        self._current = None

    def header_name_goes_on(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def header_value_goes_on(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def header_ends(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value.decode("latin-1")
        self._header_name.clear()
        self._header_value.clear()

    def headers_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"")
        if name not in _READ or b"filename" in options:
            return
        if name in self._values:
            raise FormError(f"the field {name.decode()} is there twice")
        self._current = self._values[name] = bytearray()

    def data_goes_on(self, data: bytes, start: int, end: int) -> None:
        if self._current is None:
            return
        if len(self._current) + end - start > LONGEST_FIELD_BYTES:
            raise FormError(f"a field that routing reads is longer than {LONGEST_FIELD_BYTES} bytes")
        self._current += data[start:end]

    def form_ends(self) -> None:
        self._is_whole = True

    def check_is_whole(self) -> None:
        if not self._is_whole:
            raise FormError("the multipart form ends before its last boundary")

    def text(self, name: bytes) -> str | None:
        value = self._values.get(name)
        return None if value is None else value.decode()
