// The Vercel AI SDK with its default provider, streamed: `openai()` is the Responses API, with references to items.
import { execSync } from "node:child_process";
import { createOpenAI } from "@ai-sdk/openai";
import * as ai from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });
const run_command = ai.tool({
  description: "Run a shell command and return what it prints.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => execSync(command, { encoding: "utf8" }),
});
const stopWhen = (ai.isStepCount ?? ai.stepCountIs)(60);
const messages = [];
let answer = "";
for (const instruction of JSON.parse(process.env.INSTRUCTIONS)) {
  messages.push({ role: "user", content: instruction });
  const result = ai.streamText({
    model: openai(process.env.MODEL),
    system: "You look after a harbour.",
    messages,
    tools: { run_command },
    stopWhen,
  });
  await result.consumeStream();
  messages.push(...(await result.responseMessages));
  answer = await result.text;
}
console.log(answer);
