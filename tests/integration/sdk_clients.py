"""All kinds of clients side by side."""

import asyncio
from collections.abc import Sequence

from tests.integration.sdk_jobs import Client, Lane, Outcome
from tests.integration.sdk_node import run_node_lanes
from tests.integration.sdk_python import run_lane


async def run_lanes(lanes: Sequence[Lane], *, duration_s: float | None = None) -> dict[str, Outcome]:
    """Do all lanes side by side, beginning no job after `duration_s`; how each job that was begun ended, by name."""
    node = [lane for lane in lanes if lane[0].client is Client.OPENAI_NODE]
    python = [lane for lane in lanes if lane[0].client is not Client.OPENAI_NODE]
    runs = [run_lane(lane, duration_s=duration_s) for lane in python]
    if node:
        runs.append(run_node_lanes(node, duration_s=duration_s))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in runs]
    return {outcome.job: outcome for task in tasks for outcome in task.result()}
