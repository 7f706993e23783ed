"""The HTTP exchange that is repeated: a chat request of 2 KB, and an engine's answers to it, of different lengths."""

import json

PATH = "/v1/chat/completions"
BODY_BYTES = 2048
COMPLETION_TOKENS = tuple(40 + 97 * number % 461 for number in range(64))
"""Not one figure: learning from answers that are all alike would cost less than in life."""
_PROMPT_TOKENS = 430

_SYSTEM = (
    "You are the support assistant of an online bookshop. Answer in the customer's language, in at most three short "
    "paragraphs. Never promise a delivery date. If you do not know an order's state, say so and name the help page."
)
_TURNS = (
    "Hello, I ordered three books on 12 March (order 4711-0815) and only two of them have arrived. What now?",
    (
        "I am sorry to hear that. Orders of several titles are often sent in more than one parcel. Could you tell me "
        "which of the three is missing, and whether the mail that announced the parcel names one parcel or two?"
    ),
    "The atlas is missing. The mail names one parcel, 2.4 kg, and the parcel that came was open and taped again.",
)
_LAST = "The label says 1.1 kg. Please tell me what I should do about it, and what you need from me. "


def request_body() -> bytes:
    """The chat request: four turns, a bound on the answer, not streamed; its last turn is filled up to 2 KB."""
    short = _request_json("")
    filler = (_LAST * (BODY_BYTES // len(_LAST)))[: BODY_BYTES - len(short)]
    return _request_json(filler)


def http_request(port: int) -> bytes:
    """The whole HTTP/1.1 request for a gateway on 127.0.0.1."""
    body = request_body()
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer sk-0000\r\nuser-agent: bench\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def http_answers() -> list[bytes]:
    """The engine's HTTP/1.1 answers, with the usage that settles a request."""
    return [_http_answer(tokens) for tokens in COMPLETION_TOKENS]


def _http_answer(completion_tokens: int) -> bytes:
    text = "Thank you for the weights: they show that the atlas was taken out on the way. " * 8
    usage = {"prompt_tokens": _PROMPT_TOKENS, "completion_tokens": completion_tokens}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": usage | {"total_tokens": sum(usage.values())},
    }
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _request_json(last: str) -> bytes:
    roles = ("user", "assistant", "user", "user")
    turns = [{"role": role, "content": text} for role, text in zip(roles, (*_TURNS, last), strict=True)]
    fields = {
        "model": "bench",
        "messages": [{"role": "system", "content": _SYSTEM}, *turns],
        "max_tokens": 512,
        "temperature": 0.7,
    }
    return json.dumps(fields).encode()
