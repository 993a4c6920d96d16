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

/** What a link holds: the plan, and the one that is kept beside it. */
export interface State {
  plan: Plan;
  kept?: Plan;
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

export async function encoded({ plan, kept }: State): Promise<string> {
  const packed = await through(new TextEncoder().encode(JSON.stringify(kept ? { ...plan, kept } : plan)), new CompressionStream("deflate-raw"));
  let text = "";
  for (const byte of packed) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function isPlan(value: any): value is Plan {
  const whole = (number: unknown): boolean => Number.isInteger(number) && (number as number) > 0;
  const object = (each: unknown): boolean => typeof each === "object" && each !== null;
  return object(value) && (typeof value.model === "string" || object(value.model)) && typeof value.device === "string" && whole(value.perNode) && whole(value.nodes) &&
    object(value.strategy);
}

/** Throws where the text is no plan: links are typed and cut by people. */
export async function decoded(text: string): Promise<State> {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const { kept, ...plan } = JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))));
  if (!isPlan(plan) || (kept !== undefined && !isPlan(kept))) throw new Error("the link holds no plan");
  return { plan, kept };
}
