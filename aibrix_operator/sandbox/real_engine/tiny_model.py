"""Makes tiny Llama models with random weights, offline, for engines that are real and models that need not be good.

``ensure_model`` is called by ``demo.py`` and starts this same file as a script under the vLLM environment's Python,
which holds torch and transformers; the host side imports neither. Equal seeds give equal files, different seeds models
that answer differently. The weights favour whole English words, so that an answer can be told from garbage by eye.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CHAT_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ("<|pad|>", "<|start|>", "<|end|>")
_SPEECH = (
    " the of and to in is it you that he was for on are with as they be at one have this from or had by hot word"
    " but what some we can out other were all there when up use your how said an each she which do their time if"
    " will way about many then them write would like so these her long make thing see him two has look more day"
    " could go come did number sound no most people over know water than call first who may down side been now"
    " find new work part take get place made live where after back little only round man year came show every good"
    " give our under name very through just form much great think say help low line before turn cause same mean"
    " move right boy old too does tell sentence set three want air well also play small end put home read hand"
    " port large spell add even land here must big high such follow act why ask men change went light kind off"
    " need house picture try us again animal point mother world near build self earth father card engine model"
    " memory"
)
WORDS = tuple(_SPEECH.split())
MAX_POSITIONS = 2048
_WORD_WEIGHT = 2.5
"""How much louder whole words are in the output layer than they would be by chance: enough to win also when sampled."""


class ModelError(Exception):
    """The model could not be made; the text holds what the maker said last."""


def ensure_model(python: Path, models: Path, seed: int) -> Path:
    """The folder of the model with ``seed`` below ``models``, made first if it is not there. Raises ModelError.

    The folder's name carries a digest of this file, so that a changed recipe makes a new model. A folder appears whole.
    """
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    folder = models / f"tiny-llama-{seed}-{recipe}"
    if folder.exists():
        return folder
    models.mkdir(parents=True, exist_ok=True)
    part = models / f".{folder.name}.{os.getpid()}"
    command = [str(python), str(Path(__file__)), "--out", str(part), "--seed", str(seed)]
    quiet = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    try:
        made = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False, timeout=300)
        if made.returncode != 0:
            last = "\n".join(made.stderr.splitlines()[-8:])
            raise ModelError(f"the tiny model of seed {seed} could not be made (exit code {made.returncode}):\n{last}")
        # A model that another process finished meanwhile is as good: rename refuses a folder that holds files.
        if not folder.exists():
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def byte_alphabet() -> dict[int, str]:
    """Byte → the printable character that stands for it in byte-level BPE (the published GPT-2 mapping)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    hidden = [byte for byte in range(256) if byte not in alphabet]
    return alphabet | {byte: chr(0x100 + position) for position, byte in enumerate(hidden)}


def vocabulary() -> tuple[dict[str, int], list[tuple[str, str]], list[int]]:
    """Token → id, the merges in order of rank, and the ids of whole words with their leading blank.

    Each word is merged from left to right, and common beginnings are shared. Nothing is trained, so nothing depends on
    the trainer's tie-breaking.
    """
    alphabet = byte_alphabet()
    tokens = {token: number for number, token in enumerate([*SPECIAL_TOKENS, *(alphabet[byte] for byte in range(256))])}
    merges: list[tuple[str, str]] = []
    words = []
    for word in WORDS:
        symbols = [alphabet[byte] for byte in f" {word}".encode()]
        joined = symbols[0]
        for symbol in symbols[1:]:
            if joined + symbol not in tokens:
                merges.append((joined, symbol))
                tokens[joined + symbol] = len(tokens)
            joined += symbol
        words.append(tokens[joined])
    return tokens, merges, words


def make(out: Path, seed: int) -> None:
    """Write configuration, weights, tokenizer and chat template into ``out``. For the vLLM environment's Python."""
    tokens, merges, words = vocabulary()
    out.mkdir(parents=True)
    _write_tokenizer(out, tokens, merges)
    _write_weights(out, len(tokens), words, seed)


def _write_tokenizer(out: Path, tokens: Mapping[str, int], merges: list[tuple[str, str]]) -> None:
    # Only the vLLM environment has these two packages; mypy runs without it.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-not-found]
    from transformers import PreTrainedTokenizerFast  # type: ignore[import-not-found]

    tokenizer = Tokenizer(models.BPE(vocab=dict(tokens), merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    pad, start, end = SPECIAL_TOKENS
    tokenizer.add_special_tokens([pad, start, end])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, bos_token=start, eos_token=end, model_max_length=MAX_POSITIONS
    )
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(out)


def _write_weights(out: Path, vocabulary_size: int, words: list[int], seed: int) -> None:
    import torch  # type: ignore[import-not-found]  # only the vLLM environment has it
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary_size,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=0.2,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        loudness = torch.zeros(vocabulary_size, 1)
        loudness[words] = _WORD_WEIGHT
        model.lm_head.weight.mul_(loudness)
    model.save_pretrained(out)


def main() -> int:
    parser = argparse.ArgumentParser(description="make a tiny Llama model with random weights")
    parser.add_argument("--out", type=Path, required=True, help="folder to make; it may not exist yet")
    parser.add_argument("--seed", type=int, required=True, help="equal seeds make equal models")
    arguments = parser.parse_args()
    make(arguments.out, arguments.seed)
    print(json.dumps({"model": str(arguments.out), "seed": arguments.seed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
