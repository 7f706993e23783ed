"""The Python libraries of OpenAI and Anthropic, as callers use them."""

import asyncio
from typing import Any, assert_never

import anthropic
import openai

from tests.integration.sdk_jobs import JOB_HEADER, Client, Job, Lane, Outcome


async def run_lane(lane: Lane, *, duration_s: float | None = None) -> list[Outcome]:
    """Do a lane's jobs one after the other, beginning none after `duration_s`. Raises what is no error of the SDK."""
    loop = asyncio.get_running_loop()
    end_s = None if duration_s is None else loop.time() + duration_s
    outcomes: list[Outcome] = []
    for job in lane:
        if end_s is not None and loop.time() >= end_s:
            break
        outcomes.append(await _outcome(job))
    return outcomes


async def _outcome(job: Job) -> Outcome:
    match job.client:
        case Client.OPENAI_PYTHON:
            return await _openai(job)
        case Client.ANTHROPIC_PYTHON:
            return await _anthropic(job)
        case Client.OPENAI_NODE:
            raise ValueError(f"{job.name}: not a client of this language")
        case _ as never:
            assert_never(never)


async def _openai(job: Job) -> Outcome:
    try:
        async with openai.AsyncOpenAI(base_url=f"{job.url}/v1", api_key="none", **_settings(job)) as client:
            return Outcome(job=job.name, text=await _chat(client, job))
    except openai.APIError as error:
        return Outcome(
            job=job.name,
            raised=type(error).__name__,
            status=error.status_code if isinstance(error, openai.APIStatusError) else 0,
            kind=error.type or "",
            code=error.code or "",
            message=error.message,
        )


async def _chat(client: openai.AsyncOpenAI, job: Job) -> str:
    chats = client.chat.completions
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": job.prompt}]
    if not job.stream:
        answer = await chats.create(model="tiny", max_tokens=job.max_tokens, messages=messages)
        return answer.choices[0].message.content or ""
    stream = await chats.create(model="tiny", max_tokens=job.max_tokens, messages=messages, stream=True)
    return "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])


async def _anthropic(job: Job) -> Outcome:
    try:
        async with anthropic.AsyncAnthropic(base_url=job.url, api_key="none", **_settings(job)) as client:
            return Outcome(job=job.name, text=await _message(client, job))
    except anthropic.APIError as error:
        status = error if isinstance(error, anthropic.APIStatusError) else None
        return Outcome(
            job=job.name,
            raised=type(error).__name__,
            status=status.status_code if status else 0,
            kind=(status.type or "") if status else "",
            code=(status.error_code or "") if status else "",
            message=(status.api_message or "") if status else error.message,
        )


async def _message(client: anthropic.AsyncAnthropic, job: Job) -> str:
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": job.prompt}]
    if not job.stream:
        answer = await client.messages.create(model="tiny", max_tokens=job.max_tokens, messages=messages)
        return "".join(block.text for block in answer.content if block.type == "text")
    async with client.messages.stream(model="tiny", max_tokens=job.max_tokens, messages=messages) as stream:
        return "".join([text async for text in stream.text_stream])


def _settings(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {"default_headers": {JOB_HEADER: job.name}}
    return settings if job.retries_max is None else settings | {"max_retries": job.retries_max}
