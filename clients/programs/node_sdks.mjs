// A tool loop on the official packages for Node, streamed: `openai` with either API, or `@anthropic-ai/sdk`.
import { execSync } from "node:child_process";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const kind = process.argv[2];
const model = process.env.MODEL;
const instructions = JSON.parse(process.env.INSTRUCTIONS);
const system = "You look after a harbour.";
const schema = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const tool = { name: "run_command", description: "Run a shell command and return what it prints." };
const run = (told) => execSync(told.command, { encoding: "utf8" });

async function chat(client, talk) {
  const tools = [{ type: "function", function: { ...tool, parameters: schema } }];
  const messages = [{ role: "system", content: system }, ...talk];
  const message = await client.chat.completions.stream({ model, messages, tools }).finalMessage();
  const calls = message.tool_calls ?? [];
  talk.push({ role: "assistant", content: message.content, ...(calls.length ? { tool_calls: calls } : {}) });
  for (const call of calls) {
    talk.push({ role: "tool", tool_call_id: call.id, content: run(JSON.parse(call.function.arguments)) });
  }
  return calls.length ? null : message.content;
}

async function responses(client, talk) {
  const tools = [{ type: "function", ...tool, parameters: schema, strict: false }];
  const stream = client.responses.stream({ model, input: talk, tools, instructions: system });
  const response = await stream.finalResponse();
  talk.push(...response.output.map(({ parsed_arguments, ...item }) => item));
  const calls = response.output.filter((item) => item.type === "function_call");
  for (const call of calls) {
    talk.push({ type: "function_call_output", call_id: call.call_id, output: run(JSON.parse(call.arguments)) });
  }
  return calls.length ? null : response.output_text;
}

async function messages(client, talk) {
  const tools = [{ ...tool, input_schema: schema }];
  const message = await client.messages
    .stream({ model, max_tokens: 2000, system, messages: talk, tools })
    .finalMessage();
  talk.push({ role: "assistant", content: message.content });
  const calls = message.content.filter((part) => part.type === "tool_use");
  if (calls.length) {
    const results = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: run(call.input) }));
    talk.push({ role: "user", content: results });
  }
  return calls.length ? null : message.content.at(-1).text;
}

const turn = { chat, responses, messages }[kind];
const client = kind === "messages" ? new Anthropic() : new OpenAI();
const talk = [];
let answer = null;
for (const instruction of instructions) {
  talk.push({ role: "user", content: instruction });
  do {
    answer = await turn(client, talk);
  } while (answer === null);
}
console.log(answer);
