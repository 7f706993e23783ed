"""A model for vLLM that is nothing but its description: a small Llama, a byte a token; vLLM makes up the weights.

It is as large as it is (100 million parameters) so that a step takes some 20 ms on a CPU, as it does for a real
model on a GPU: with a faster one, the cache would fill and empty between two looks at it.
"""

import json
from pathlib import Path
from typing import Any

_SPECIAL = ("<s>", "</s>")
EOS = 1
"""The token that ends an answer."""
_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
    "vocab_size": 256 + len(_SPECIAL),
    "bos_token_id": 0,
    "eos_token_id": EOS,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
_TOKENIZER_CONFIG: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": _SPECIAL[0],
    "eos_token": _SPECIAL[1],
    "clean_up_tokenization_spaces": False,
    "model_max_length": 2048,
    "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
}


def write_tiny_transformer(folder: Path) -> None:
    """Write the files that `--load-format dummy` needs."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"config": _CONFIG, "tokenizer": _tokenizer(), "tokenizer_config": _TOKENIZER_CONFIG}
    for name, content in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def _tokenizer() -> dict[str, Any]:
    """Byte-level BPE with no merges: every byte is a token."""
    tokens = [*_SPECIAL, *_byte_characters()]
    added = [
        {"id": number, "content": text, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for number, text in enumerate(_SPECIAL)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {text: number for number, text in enumerate(tokens)}, "merges": []},
    }


def _byte_characters() -> list[str]:
    """The printable characters that byte-level BPE writes bytes with: themselves, and from 256 on for the others."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
