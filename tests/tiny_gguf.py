"""A language model of random weights for llama.cpp: one layer, a byte a token, 0.2 MB. It is fast and talks nonsense.

What it says does not matter to a gateway; that it is a real model in a real engine does. Every byte is a token, so any
text can be a prompt. Weights are so small that all tokens are almost equally likely, the end of the answer among them:
a `logit_bias` on `EOS` says how long answers are.
"""

from pathlib import Path

import gguf
import numpy as np

EOS = 2
"""The token that ends an answer."""
CONTEXT_TOKENS_MAX = 1 << 20
"""What the model says it was trained for; the engine's own setting decides."""
_EMBEDDING, _HEADS, _FEED_FORWARD = 64, 2, 128
_TYPE = gguf.TokenType
_VOCABULARY = [("<unk>", _TYPE.UNKNOWN), ("<s>", _TYPE.CONTROL), ("</s>", _TYPE.CONTROL)]
_VOCABULARY += [(f"<0x{byte:02X}>", _TYPE.BYTE) for byte in range(256)]
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def write_tiny_model(path: Path, *, seed: int = 1) -> None:
    """Write the model; the same seed gives the same weights."""
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer)
    _add_vocabulary(writer)
    _add_weights(writer, np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter) -> None:
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT_TOKENS_MAX)
    writer.add_embedding_length(_EMBEDDING)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_EMBEDDING // _HEADS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in _VOCABULARY])
    writer.add_token_scores([0.0] * len(_VOCABULARY))
    writer.add_token_types([kind for _, kind in _VOCABULARY])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(EOS)
    writer.add_chat_template(_TEMPLATE)


def _add_weights(writer: gguf.GGUFWriter, random: np.random.Generator) -> None:
    def matrix(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(f"{name}.weight", random.normal(0.0, 0.02, (rows, columns)).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(_EMBEDDING, dtype=np.float32))

    matrix("token_embd", len(_VOCABULARY), _EMBEDDING)
    norm("blk.0.attn_norm")
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        matrix(f"blk.0.{name}", _EMBEDDING, _EMBEDDING)
    norm("blk.0.ffn_norm")
    matrix("blk.0.ffn_gate", _FEED_FORWARD, _EMBEDDING)
    matrix("blk.0.ffn_up", _FEED_FORWARD, _EMBEDDING)
    matrix("blk.0.ffn_down", _EMBEDDING, _FEED_FORWARD)
    norm("output_norm")
    matrix("output", len(_VOCABULARY), _EMBEDDING)
