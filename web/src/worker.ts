// The planner's module: a request goes into its memory as text, the answer is read from there.

interface Planner {
  memory: WebAssembly.Memory;
  plimsoll_call(request: number): number;
  plimsoll_free(answer: number): void;
  malloc(bytes: number): number;
  free(address: number): void;
}

const kNotThere = 52; // ENOSYS: a page has no files, clocks or environment, and the planner needs none

/** What a program asks its system for. All of it is answered with "there is no such thing", but for the end of a failed program. */
function systemFor(module: WebAssembly.Module, memory: () => WebAssembly.Memory): WebAssembly.Imports {
  const imports: Record<string, Record<string, WebAssembly.ImportValue>> = {};
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    if (kind !== "function") continue;
    imports[from] ??= {};
    imports[from][name] = from === "wasi_snapshot_preview1" ? () => kNotThere : () => -kNotThere;
  }
  const wasi = imports["wasi_snapshot_preview1"] ?? {};
  if (wasi.environ_sizes_get)
    wasi.environ_sizes_get = (count: number, bytes: number) => {
      const view = new DataView(memory().buffer);
      view.setUint32(count, 0, true);
      view.setUint32(bytes, 0, true);
      return 0;
    };
  if (wasi.environ_get) wasi.environ_get = () => 0;
  wasi.proc_exit = (code: number) => {
    throw new Error(`the planner ended with ${code}`);
  };
  return imports;
}

async function load(address: string): Promise<Planner> {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: ${response.status}`);
  const module = await WebAssembly.compile(await response.arrayBuffer());
  let planner: Planner;
  const instance = await WebAssembly.instantiate(module, systemFor(module, () => planner.memory));
  planner = instance.exports as unknown as Planner;
  (instance.exports._initialize as (() => void) | undefined)?.();
  return planner;
}

function call(planner: Planner, request: string): string {
  const bytes = new TextEncoder().encode(request);
  const address = planner.malloc(bytes.length + 1);
  const room = new Uint8Array(planner.memory.buffer, address, bytes.length + 1);
  room.set(bytes);
  room[bytes.length] = 0;
  const answer = planner.plimsoll_call(address);
  planner.free(address);
  if (answer === 0) throw new Error("the planner has no memory left");
  const memory = new Uint8Array(planner.memory.buffer);
  const text = new TextDecoder().decode(memory.subarray(answer, memory.indexOf(0, answer)));
  planner.plimsoll_free(answer);
  return text;
}

let planner: Planner | undefined;
self.onmessage = async ({ data }) => {
  if (data.module) {
    try {
      planner = await load(data.module);
      self.postMessage({ ready: true });
    } catch (problem) {
      self.postMessage({ failed: String(problem) });
    }
    return;
  }
  try {
    self.postMessage({ id: data.id, text: call(planner!, data.request) });
  } catch (problem) {
    self.postMessage({ id: data.id, problem: String(problem) });
  }
};
