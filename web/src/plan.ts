// The state of the page: what is asked. All of it fits into a link.

export type Value = string | number;

export interface Plan {
  /** Name of a shipped model, or the config.json that was dropped. */
  model: string | Record<string, unknown>;
  device: string;
  perNode: number;
  nodes: number;
  /** Keys of docs/rows.md; a key that is not here is the framework's choice. */
  strategy: Record<string, Value>;
}

export const kFirstPlan: Plan = {
  model: "llama-3.1-8b", device: "mi300x", perNode: 8, nodes: 1,
  strategy: { fsdp: "full", micro_batch: 2, seq: 8192 },
};

export function clusterOf(plan: Plan): string {
  return plan.nodes > 1 ? `${plan.nodes}x${plan.perNode}x${plan.device}` : `${plan.perNode}x${plan.device}`;
}

export function requestOf(command: string, plan: Plan): Record<string, unknown> {
  return { command, model: plan.model, on: clusterOf(plan), strategy: plan.strategy };
}

function quoted(word: string): string {
  return /^[\w.+\-/,:@%=]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The same question for the command line. */
export function commandLine(plan: Plan, command = "estimate"): string {
  const model = typeof plan.model === "string" ? plan.model : "config.json";
  const flags = Object.entries(plan.strategy).map(([key, value]) => ` --${key.replaceAll("_", "-")} ${quoted(String(value))}`);
  return `plimsoll ${command} ${quoted(model)} --on ${clusterOf(plan)}${flags.join("")}`;
}

/** `--micro-batch 1 --global-batch 16`, as a suggestion has it, on top of the plan. */
export function withFlags(plan: Plan, flags: string): Plan {
  const strategy = { ...plan.strategy };
  const words = flags.match(/'[^']*'|\S+/g) ?? [];
  for (let i = 0; i + 1 < words.length; i += 2) {
    const text = words[i + 1].replace(/^'|'$/g, "");
    strategy[words[i].slice(2).replaceAll("-", "_")] = text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
  }
  return { ...plan, strategy };
}

async function through(bytes: Uint8Array<ArrayBuffer>, stream: TransformStream): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

export async function encoded(plan: Plan): Promise<string> {
  const packed = await through(new TextEncoder().encode(JSON.stringify(plan)), new CompressionStream("deflate-raw"));
  let text = "";
  for (const byte of packed) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** Throws where the text is no plan: links are typed and cut by people. */
export async function decoded(text: string): Promise<Plan> {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const plan = JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))));
  const model = plan?.model;
  const whole = (number: unknown) => Number.isInteger(number) && (number as number) > 0;
  const good = (typeof model === "string" || (typeof model === "object" && model !== null)) && typeof plan.device === "string" && whole(plan.perNode) &&
    whole(plan.nodes) && typeof plan.strategy === "object" && plan.strategy !== null;
  if (!good) throw new Error("the link holds no plan");
  return plan;
}
