// OpenAI's own client for Node, told what to ask by JSON on stdin: {lanes: [[job, ...], ...], duration_s: number | null}.
// Lanes run side by side, the jobs of a lane one after the other; none is begun after the duration.
// One line of JSON a job on stdout, as it ends. What the SDK does not raise as an error of its own ends the process.

import { text } from "node:stream/consumers";
import OpenAI, { APIError } from "openai";

const { lanes, duration_s } = JSON.parse(await text(process.stdin));
const end_ms = duration_s === null ? Infinity : performance.now() + 1000 * duration_s;

async function ask(job) {
  const client = new OpenAI({
    baseURL: `${job.url}/v1`,
    apiKey: "none",
    defaultHeaders: { "x-test-job": job.name },
    ...(job.retries_max === null ? {} : { maxRetries: job.retries_max }),
  });
  const body = { model: "tiny", max_tokens: job.max_tokens, messages: [{ role: "user", content: job.prompt }] };
  if (!job.stream) {
    const answer = await client.chat.completions.create(body);
    return answer.choices[0].message.content;
  }
  let said = "";
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
    said += chunk.choices[0]?.delta.content ?? "";
  }
  return said;
}

async function outcome(job) {
  try {
    return { job: job.name, text: await ask(job) };
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    return {
      job: job.name,
      raised: error.constructor.name,
      status: error.status ?? 0,
      kind: error.type ?? "",
      code: error.code ?? "",
      message: error.message,
    };
  }
}

async function run(lane) {
  for (const job of lane) {
    if (performance.now() >= end_ms) return;
    process.stdout.write(JSON.stringify(await outcome(job)) + "\n");
  }
}

await Promise.all(lanes.map(run));
