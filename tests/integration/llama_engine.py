"""The program that llama.cpp's server runs in: `python -m tests.integration.llama_engine MODEL PORT SLOTS TOKENS_MAX`.

The real engine, in a process of its own as in production. It serves until SIGTERM.
"""

import signal
import sys

import xllamacpp


def server_of(model: str, *, port: int, slots: int, context_tokens: int) -> xllamacpp.Server:
    """Start the server on 127.0.0.1; it serves from threads of its own.

    Args:
        model: path of a GGUF file.
        slots: sequences at once; what comes beyond them waits in the engine's own queue, which has no limit.
        context_tokens: prompt and answer of one sequence at most.
    """
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * context_tokens
    params.n_threads_http = slots + 16  # one of them serves one connection: the page must be served beside all requests
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = params.endpoint_slots = True
    params.fit_params = params.warmup = params.ui = False
    return xllamacpp.Server(params)


def main(arguments: list[str]) -> None:
    """Serve until told to end."""
    model, *figures = arguments
    port, slots, context_tokens = (int(each) for each in figures)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    server = server_of(model, port=port, slots=slots, context_tokens=context_tokens)
    print("serving on", server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM})
    del server  # ends its threads


if __name__ == "__main__":
    main(sys.argv[1:])
