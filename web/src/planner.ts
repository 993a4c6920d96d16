// Who answers: the planner itself, compiled to WebAssembly, in a worker; without it the server that this page came from.

export interface PlannerError {
  code: string;
  message: string;
  where: string;
  hint: string;
}

/** What was wrong with a request, in the planner's own words. */
export class Refusal extends Error {
  constructor(readonly error: PlannerError) {
    super(error.message);
  }
}

/** A refusal as a sentence; anything else as it says itself. */
export function problemText(problem: unknown): string {
  if (!(problem instanceof Refusal)) return problem instanceof Error ? problem.message : String(problem);
  const { message, where, hint } = problem.error;
  return [where ? `${where}: ${message}` : message, hint].filter(Boolean).join(". ");
}

type Request = Record<string, unknown>;

/** Answers requests of the C function (docs/c-api.md), in the order in which they are asked. */
export interface Planner {
  /** "in this page" or "by the server": where the numbers are made */
  readonly where: string;
  call(request: Request): Promise<any>;
}

function unpacked(text: string): any {
  const answer = JSON.parse(text);
  if (answer.schema === "plimsoll/error/1") throw new Refusal(answer.error);
  return answer;
}

/** The planner in a worker: a long answer does not hold up the page. */
async function inPage(): Promise<Planner> {
  const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
  const waiting = new Map<number, { resolve: (text: string) => void; reject: (reason: Error) => void }>();
  let next = 0;
  const started = new Promise<void>((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.ready) return resolve();
      if (data.failed) return reject(new Error(data.failed));
      const asked = waiting.get(data.id);
      waiting.delete(data.id);
      if (data.text === undefined) asked?.reject(new Error(data.problem));
      else asked?.resolve(data.text);
    };
    worker.onerror = () => reject(new Error("the planner's worker does not start"));
  });
  worker.postMessage({ module: new URL("plimsoll.wasm", document.baseURI).href });
  await started;
  return {
    where: "Everything is computed in this page; nothing leaves this machine.",
    call: async (request) => {
      const id = next++;
      const text = await new Promise<string>((resolve, reject) => {
        waiting.set(id, { resolve, reject });
        worker.postMessage({ id, request: JSON.stringify(request) });
      });
      return unpacked(text);
    },
  };
}

function byServer(): Planner {
  const address = new URL("api/call", document.baseURI);
  return {
    where: `Computed by ${address.host}.`,
    call: async (request) => {
      const response = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request) });
      return unpacked(await response.text());
    },
  };
}

/** The planner in the page where its module is there, else the server's. */
export async function findPlanner(): Promise<Planner> {
  try {
    return await inPage();
  } catch {
    const server = byServer();
    await server.call({ command: "version" });
    return server;
  }
}
