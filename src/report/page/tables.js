// Tables that sort at a click on a column's title, and what would help.
import { element, section } from "./dom.js";
import { bytesText, percentText } from "./units.js";

const kShown = 200, kLong = 24, kNarrow = 3;  // rows; letters of a cell that asks for room; columns that always have it

/** A cell's value to sort by. @param {[string, string]} cell */
function keyOf(cell) {
  const number = Number(cell[1]);
  return cell[1] !== "" && Number.isFinite(number) ? number : cell[1];
}

/** A command line breaks between its options alone. @param {string} line @returns {(Node | string)[]} */
function commandParts(line) {
  return line.split(/ (?=--)/).flatMap((part, i) => [i > 0 ? " " : "", element("span", {}, part)]);
}

/** A cell's content: command lines as code. @param {string} text */
const contentOf = (text) => (text.startsWith("plimsoll ") ? element("code", { class: "command" }, ...commandParts(text)) : text);

/** @param {{title: string, columns: string[], rows: [string, string][][]}} table */
export function tableSection(table) {
  const body = element("tbody"), rows = table.rows.slice();
  const isLong = (/** @type {[string, string]} */ cell) => typeof keyOf(cell) !== "number" && cell[0].length > kLong;
  const cellOf = (/** @type {[string, string]} */ cell, /** @type {number} */ column) =>
    element("td", { class: typeof keyOf(cell) === "number" ? "number" : isLong(cell) ? "long" : undefined, "data-title": table.columns[column] }, contentOf(cell[0]));
  const show = () => body.replaceChildren(...rows.slice(0, kShown).map((row) => element("tr", {}, ...row.map(cellOf))));
  const wide = table.columns.length > kNarrow && rows.some((row) => row.some(isLong));  // a narrow screen shows a row of it as a list
  const sort = (/** @type {number} */ column, /** @type {HTMLElement} */ head) => {
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of /** @type {HTMLElement} */ (head.parentElement).children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    rows.sort((a, b) => { const x = keyOf(a[column]), y = keyOf(b[column]); return (x < y ? 1 : x > y ? -1 : 0) * (down ? 1 : -1); });
    show();
  };
  const heads = table.columns.map((title, i) => {
    const head = element("th", { scope: "col" });
    head.append(element("button", { type: "button", onclick: () => sort(i, head) }, title));
    return head;
  });
  show();
  const more = rows.length > kShown ? [element("p", { class: "faint" }, `${rows.length} rows; the first ${kShown} of the order are shown`)] : [];
  return section(table.title, element("div", { class: "scroll", tabindex: 0 }, element("table", { class: wide ? "wide" : undefined }, element("thead", {}, element("tr", {}, ...heads)), body)), ...more);
}

/** A change in seconds: "4 % faster". @param {number | null} ratio */
function speedText(ratio) {
  if (!ratio) return "time not modelled";
  if (ratio > 1.995) return `${ratio.toFixed(1)} × as long`;
  const share = Math.abs(ratio - 1);
  return share < 0.0005 ? "as fast" : `${percentText(share)} ${ratio < 1 ? "faster" : "slower"}`;
}

/** What a change saves, in its sign. @param {number} saved bytes */
const savedText = (saved) => (saved === 0 ? "same" : `${saved < 0 ? "+" : "−"}${bytesText(Math.abs(saved))}`);

/** Single changes and what each does. @param {string} title @param {any[]} changes `changes` or `faster` of plimsoll/explain/1
 * @param {number} capacity bytes @param {(flag: string) => void} [take] what a click does */
export function changesSection(title, changes, capacity, take) {
  if (changes.length === 0) return section(title, element("p", {}, "Nothing that was tried."));
  const whole = Math.max(capacity, ...changes.map((change) => change.device_bytes));
  const rows = changes.map((change) => element("li", { class: `verdict-${change.verdict.replaceAll(" ", "_")}` },
    take ? element("button", { type: "button", class: "take", onclick: () => take(change.flag) }, change.flag) : element("code", {}, change.flag),
    element("span", { class: "gauge", "aria-hidden": "true" }, element("i", { style: `width:${(100 * change.device_bytes) / whole}%` }), element("b", { style: `left:${(100 * capacity) / whole}%` })),
    element("span", { class: "number" }, `${bytesText(change.device_bytes)} (${savedText(change.saved_bytes)})`),
    element("span", { class: "word" }, change.verdict.replaceAll("_", " ") + (change.fewer_bits ? ", fewer bits" : "")), element("span", { class: "speed", title: change.step_time_ratio ? `step × ${change.step_time_ratio.toFixed(3)}` : undefined }, speedText(change.step_time_ratio))));
  return section(title, element("ul", { class: "changes" }, ...rows));
}
