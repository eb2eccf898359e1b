"""How many tokens a prompt is, before its engine has counted them: by what the model's engines counted of others.

Tokenizers differ by twice and more, and so do languages; nobody but the engine has the model's.
"""

from __future__ import annotations

import math
from typing import Final

UNKNOWN_BYTES: Final = 4.0
"""A token of English, with most tokenizers."""
_LEAST_BYTES: Final = 256
"""In a shorter prompt most tokens are the chat template's."""
_PLAUSIBLE: Final = (1.0, 16.0)
"""Bytes a token. Beyond them a prompt was not text: an image in base64 has a thousand."""
_FADES: Final = 1 / 200
"""Of what was learned, with each prompt: what counts are the last few hundred."""
_PRIOR_TOKENS: Final = 256.0
"""Tokens of ``UNKNOWN_BYTES`` that a model begins with, so that one odd prompt decides nothing."""


class TokenSizes:
    """Bytes a token of each model. Nothing here waits; it is used from one thread."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}
        """Model → (bytes, tokens) of prompts, the older the less they weigh."""

    def tokens(self, model: str, prompt_bytes: int) -> int:
        """An estimate, rounded up."""
        seen = self._seen.get(model)
        if seen is None:
            return math.ceil(prompt_bytes / UNKNOWN_BYTES)
        return math.ceil(prompt_bytes * seen[1] / seen[0])

    def learn(self, model: str, prompt_bytes: int, prompt_tokens: int) -> None:
        """An engine has counted the tokens of a prompt."""
        least, most = _PLAUSIBLE
        if prompt_bytes < _LEAST_BYTES or not least * prompt_tokens <= prompt_bytes <= most * prompt_tokens:
            return
        size, count = self._seen.get(model, (_PRIOR_TOKENS * UNKNOWN_BYTES, _PRIOR_TOKENS))
        kept = 1 - _FADES
        self._seen[model] = (size * kept + prompt_bytes, count * kept + prompt_tokens)

    def drop(self, model: str) -> None:
        """It is gone."""
        self._seen.pop(model, None)
