// The page in a real browser: every control, the command line's numbers, wrong files, links, both themes and a phone's width.
// node tests/page.mjs PLIMSOLL [FOLDER FOR SCREENSHOTS]; the page is what `plimsoll serve` finds or --page names.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, mkdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { chromium } from "playwright-core";

const [program, folder, shots = mkdtempSync(join(tmpdir(), "plimsoll-page-"))] = process.argv.slice(2);
mkdirSync(shots, { recursive: true });

function serve() {
  const server = spawn(program, ["serve", "--port", "0", "--page", folder], { stdio: ["ignore", "ignore", "pipe"] });
  return new Promise((resolve, reject) => {
    server.stderr.on("data", (text) => {
      const address = /http:\/\/\S+\//.exec(String(text));
      if (address) resolve({ server, address: address[0] });
    });
    server.on("exit", (code) => reject(new Error(`plimsoll serve ended with ${code}`)));
  });
}

const tests = [];
const test = (name, act) => tests.push([name, act]);

async function settled(page) {
  await page.waitForFunction(() => document.body.dataset.answered !== undefined && document.body.dataset.viewed === document.body.dataset.answered, undefined, { timeout: 60000 });
}
/** Does something, and waits until its answer and pictures are there. */
async function after(page, act) {
  const before = await page.evaluate(() => document.body.dataset.answered);
  await act();
  await page.waitForFunction((old) => document.body.dataset.answered !== old && document.body.dataset.viewed === document.body.dataset.answered, before, { timeout: 60000 });
}
/** A link's part that holds a plan. */
const packed = (page, plan) => page.evaluate(async (value) => {
  const stream = new Blob([JSON.stringify(value)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return btoa(String.fromCharCode(...new Uint8Array(await new Response(stream).arrayBuffer()))).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}, plan);
const headline = (page) => page.textContent("#answer h1");
const cli = (words) => {
  try {
    return execFileSync(program, words, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], maxBuffer: 1 << 26 });
  } catch (error) {
    return error.stdout; // 1: it does not fit
  }
};
const wordsOf = (line) => [...line.matchAll(/'((?:[^']|'\\'')*)'|(\S+)/g)].map((match) => match[1] ?? match[2]).slice(1);

test("the first answer is the command line's", async (page) => {
  const line = await page.textContent("#command");
  const answer = JSON.parse(cli([...wordsOf(line), "--json"]));
  const gib = (answer.memory.device_bytes.expected / 2 ** 30).toFixed(2);
  assert.ok((await headline(page)).includes(`${gib} GiB of`), await headline(page));
  assert.match(await page.textContent("#where"), /in this page|Computed by/);
});

test("a slider, a menu and a field change the plan, and its link holds all of it", async (page) => {
  await after(page, () => page.locator('input[name="micro_batch"]').fill("1"));
  await after(page, () => page.locator('select[name="recompute"]').selectOption("full"));
  await after(page, () => page.locator("#nodes").fill("2").then(() => page.locator("#nodes").press("Tab")));
  const line = await page.textContent("#command");
  assert.ok(line.includes("--micro-batch 1") && line.includes("--recompute full") && line.includes("2x8xmi300x"), line);
  const other = await page.context().newPage();
  await other.goto(page.url());
  await settled(other);
  assert.equal(await other.textContent("#command"), line);
  await other.close();
});

test("what is not legal is greyed out, and the page says why", async (page) => {
  await after(page, () => page.locator('select[name="framework"]').selectOption("torchtune"));
  const reasons = await page.locator(".reasons").textContent();
  assert.match(reasons, /cannot be taken with the others/);
  assert.ok((await page.locator('select option[disabled]').count()) > 0);
});

test("a change that would help is one click away", async (page) => {
  const take = page.locator("button.take").first(), flags = await take.textContent();
  await after(page, () => take.click());
  assert.ok((await page.textContent("#command")).includes(flags.split(" ")[0]));
});

test("areas open and close again", async (page) => {
  await page.locator(".tile.opens").first().click();
  assert.ok((await page.locator(".crumbs button").count()) >= 2);
  await page.locator(".crumbs button").first().click();
  assert.equal(await page.locator(".crumbs button").count(), 1);
});

test("two plans stand side by side", async (page) => {
  await page.getByRole("button", { name: "Keep for comparison" }).click();
  await after(page, () => page.locator('input[name="micro_batch"]').fill("4"));
  const text = await page.textContent(".compared");
  assert.ok(text.includes("--micro-batch 2") && text.includes("--micro-batch 4"), text);
  const other = await page.context().newPage();
  await other.goto(page.url());
  await settled(other);
  assert.equal(await other.textContent(".compared"), text);
  await other.getByRole("button", { name: "Forget the kept one" }).click();
  assert.equal(await other.locator(".compared").count(), 0);
  await other.close();
});

test("the plan is written as files that start it, those of the command line", async (page) => {
  const formats = await page.locator("#export option").evaluateAll((options) => options.map((option) => option.value).filter((value) => value));
  assert.deepEqual(formats, cli(["export", "--help"]).match(/accelerate[\w, -]*k8s-jobset/)?.[0].split(", ") ?? formats);
  for (const to of formats) {
    await page.locator("#export").selectOption(to);
    await page.getByRole("heading", { name: `For ${to}` }).waitFor();
    const shown = await page.locator("#exported details pre").allTextContents(), refused = await page.locator("#exported [role=alert]").allTextContents();
    const printed = cli(["export", ...wordsOf(await page.textContent("#command")).slice(1), "--to", to]);
    if (refused.length === 0) for (const text of shown) assert.ok(printed.includes(text), `${to}: ${text.slice(0, 200)}`);
    assert.equal(refused.length === 0, shown.length > 0);
  }
  await page.locator("#export").selectOption("accelerate");
  await page.getByRole("heading", { name: "For accelerate" }).waitFor();
  const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save accelerate.yaml" }).click()]);
  assert.equal(saved.suggestedFilename(), "accelerate.yaml");
});

test("every control changes the command, or its value cannot be taken", async (page) => {
  for (const name of await page.locator("form select[name], form input[type=range][name]").evaluateAll((fields) => fields.map((field) => field.name))) {
    const field = page.locator(`form [name="${name}"]`), kind = await field.evaluate((each) => each.tagName);
    const before = await page.textContent("#command");
    if (kind === "SELECT") {
      const value = await field.evaluate((each) => [...each.options].find((option) => option.value && !option.disabled && !option.selected)?.value);
      if (value === undefined) continue;
      await after(page, () => field.selectOption(value));
    } else await after(page, () => field.fill("4"));
    const problem = await page.textContent("#problem");
    if (!problem) assert.notEqual(await page.textContent("#command"), before, name);
    await page.goto("about:blank");
    await page.goto(page.address);
    await settled(page);
  }
});

test("a link to a run that does not fit: one glance says why, one slider what would", async (page) => {
  const plan = { model: "llama-3.1-70b", device: "h100-sxm", perNode: 8, nodes: 1, strategy: { data_parallel: "fsdp", micro_batch: 1, seq: 4096, recompute: "full" } };
  await page.goto("about:blank");
  await page.goto(`${page.address}#${await packed(page, plan)}`);
  await settled(page);
  assert.match(await headline(page), /^does not fit: .* too much$/);
  assert.match(await page.textContent(".why"), /optimizer states take 131\.\d+ GiB of each GPU: more than it has, whatever the batch/);
  assert.match(await page.textContent("#strip"), /does not fit/);
  await page.waitForFunction(() => document.body.dataset.foreseen === document.body.dataset.answered, undefined, { timeout: 120000 });
  const marks = await page.locator('[data-marks="nodes"] .mark').evaluateAll((all) => all.map((mark) => mark.className.replace("mark ", "")));
  assert.equal(marks[0], "does_not_fit");
  const first = marks.findIndex((mark) => mark === "fits");
  assert.ok(first > 0, marks.join(" "));
  await after(page, () => page.locator("#nodes-slider").fill(String(first)));
  assert.match(await headline(page), /^fits/);
  assert.equal(await page.inputValue("#nodes"), String(2 ** first));
  const [now, words] = [await headline(page), wordsOf(await page.textContent("#command"))];
  assert.ok(now.includes(`${(JSON.parse(cli([...words, "--json"])).memory.device_bytes.expected / 2 ** 30).toFixed(2)} GiB of`), now);
});

test("what would make it fit is one click away, and does", async (page) => {
  await after(page, () => page.getByRole("button", { name: "70B on one node" }).click());
  const take = page.locator("#rescue button.take");
  await after(page, () => take.click());
  assert.match(await headline(page), /^(fits|tight)/);
});

test("every example is answered", async (page) => {
  const names = await page.locator(".examples button").allTextContents();
  assert.ok(names.length >= 3);
  for (const name of names) {
    await after(page, () => page.getByRole("button", { name, exact: true }).click());
    assert.equal(await page.textContent("#problem"), "", name);
  }
});

test("files of other programs are read as the command line reads them", async (page) => {
  const samples = join(import.meta.dirname, "../../tests/formats/samples");
  for (const [name, on] of [["axolotl/fft-8b-liger-fsdp.yaml", "8xh100-sxm"], ["torchtitan/llama3_8b.toml", "8xh100-sxm"], ["megatron/train_llama3_8b_h100_fp8.sh", "8xh100-sxm"]]) {
    const path = join(samples, name);
    await page.locator("#device").selectOption("h100-sxm");
    await after(page, () => page.locator("#config").setInputFiles({ name: basename(name), mimeType: "text/plain", buffer: readFileSync(path) }));
    assert.equal(await page.textContent("#problem"), "", name);
    assert.match(await page.textContent("#notice"), /read as/);
    const cluster = (await page.textContent("#command")).match(/--on (\S+)/)[1];
    const answer = JSON.parse(cli(["estimate", "--from", path, "--on", cluster, "--json"]));
    assert.ok((await headline(page)).includes(`${(answer.memory.device_bytes.expected / 2 ** 30).toFixed(2)} GiB of`), `${name} on ${cluster} (${on}): ${await headline(page)}, not ${answer.memory.device_bytes.expected}`);
  }
});

test("a config.json is a model; a wrong file is told, and changes nothing", async (page) => {
  const config = { model_type: "llama", architectures: ["LlamaForCausalLM"], hidden_size: 1024, intermediate_size: 2816, num_attention_heads: 16, num_hidden_layers: 4, num_key_value_heads: 8, vocab_size: 32000 };
  const give = (name, text) => page.locator("#config").setInputFiles({ name, mimeType: "application/json", buffer: Buffer.from(text) });
  await after(page, () => give("config.json", JSON.stringify(config)));
  assert.match(await headline(page), /^fits/);
  await give("broken.json", "{");
  await page.getByText("Not read: broken.json").waitFor();
  assert.match(await headline(page), /^fits/);
  await after(page, () => give("strange.json", JSON.stringify({ model_type: "<img src=x onerror=alert(1)>" })));
  assert.match(await page.textContent("#problem"), /img src=x/);
  assert.equal(await page.locator("#problem img").count(), 0);
});

test("a link that is cut is told", async (page) => {
  await page.goto(page.url().split("#")[0] + "#abc");
  await page.reload();
  await settled(page);
  assert.match(await page.textContent("#notice"), /holds no plan/);
  assert.match(await headline(page), /^(fits|tight)/);
});

test("random strategies give the command line's numbers", async (page) => {
  let seed = 7;
  const random = (values) => values[(seed = (seed * 1103515245 + 12345) % 2147483648) % values.length];
  let answered = 0, refused = 0;
  for (let i = 0; i < Number(process.env.PLIMSOLL_RANDOM_PLANS ?? 200); ++i) {
    const strategy = { micro_batch: random([1, 2, 4, 8]), seq: random([512, 2048, 4096]) };
    for (const [key, values] of [["data_parallel", ["fsdp", "hsdp", "ddp", undefined]], ["tp", [undefined, undefined, 2, 4]], ["precision", ["bf16", "fp32", "pure-bf16", undefined]],
      ["recompute", ["none", "full", undefined]], ["optimizer", ["adamw", "sgd", undefined]], ["attention", [undefined, "eager", "sdpa"]], ["framework", [undefined, undefined, "torchtitan", "megatron-core"]]]) {
      const value = random(values);
      if (value !== undefined) strategy[key] = value;
    }
    const plan = { model: random(["llama-3.1-8b", "gpt2", "qwen3-8b", "mistral-7b"]), device: random(["mi300x", "h100-sxm", "a100-80gb-sxm"]), perNode: 8, nodes: random([1, 2]), strategy };
    await page.goto("about:blank");
    await page.goto(`${page.address}#${await packed(page, plan)}`);
    await page.waitForFunction(() => document.querySelector("#command") || document.querySelector("#problem").textContent, undefined, { timeout: 60000 });
    const words = ["estimate", plan.model, "--on", plan.nodes > 1 ? `${plan.nodes}x8x${plan.device}` : `8x${plan.device}`,
      ...Object.entries(strategy).flatMap(([key, value]) => [`--${key.replaceAll("_", "-")}`, String(value)]), "--json"];
    const answer = JSON.parse(cli(words));
    if (answer.schema === "plimsoll/error/1") {
      ++refused;
      assert.ok((await page.textContent("#problem")).includes(answer.error.message), `${words.join(" ")}: ${await page.textContent("#problem")}`);
      continue;
    }
    ++answered;
    const said = await headline(page), device = answer.memory.device_bytes.expected ?? answer.memory.device_bytes;
    assert.ok(said.startsWith(answer.verdict.replaceAll("_", " ")) && said.includes(`${(device / 2 ** 30).toFixed(2)} GiB of`), `${words.join(" ")}: ${said}`);
  }
  assert.ok(answered >= 10, `${answered} answered, ${refused} refused`);
});

test("it is read aloud and used by keyboard", async (page) => {
  assert.equal(await page.locator("form input:not([type=file]), form select").evaluateAll((fields) => fields.filter((field) => !field.labels?.length && !field.getAttribute("aria-label")).length), 0);
  assert.ok((await page.locator('[role="img"]:not([aria-label])').count()) === 0);
  await page.locator('input[name="tp"]').focus();
  await after(page, () => page.keyboard.press("ArrowRight"));
  assert.ok((await page.textContent("#command")).includes("--tp 1"));
});

for (const scheme of ["light", "dark"])
  for (const width of [1280, 380])
    test(`${scheme}, ${width} wide: nothing is cut`, async (page) => {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height: 900 });
      await page.waitForTimeout(300);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(wide <= 0, `the page is ${wide} wider than the window`);
      await page.screenshot({ path: join(shots, `${scheme}-${width}.png`), fullPage: true });
    });

test("it asks nobody else", async (page) => {
  assert.deepEqual(page.foreign, []);
});

const { server, address } = await serve();
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
let failed = 0;
for (const [name, act] of tests) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.address = address;
  page.foreign = [];
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("request", (request) => { if (!request.url().startsWith(address) && !/^(about|blob|data):/.test(request.url())) page.foreign.push(request.url()); });
  try {
    await page.goto(address);
    await settled(page);
    await act(page);
    assert.deepEqual(errors, []);
    console.log(`ok      ${name} (${await page.evaluate(() => document.body.dataset.milliseconds).catch(() => "?")} ms)`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${name}: ${error.message}`);
  }
  await context.close();
}
await browser.close();
server.kill();
console.log(`${tests.length - failed} passed, ${failed} failed; screenshots in ${shots}`);
process.exit(failed ? 1 : 0);
