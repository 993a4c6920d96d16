// Tables that sort at a click on a column's title, and what would help.
import { element, section } from "./dom.js";
import { bytesText } from "./units.js";

const kShown = 200;

/** A cell's value to sort by. @param {[string, string]} cell */
function keyOf(cell) {
  const number = Number(cell[1]);
  return cell[1] !== "" && Number.isFinite(number) ? number : cell[1];
}

/** @param {{title: string, columns: string[], rows: [string, string][][]}} table */
export function tableSection(table) {
  const body = element("tbody"), rows = table.rows.slice();
  const show = () => body.replaceChildren(...rows.slice(0, kShown).map((row) => element("tr", {}, ...row.map((cell) => element("td", { class: typeof keyOf(cell) === "number" ? "number" : undefined }, cell[0])))));
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
  return section(table.title, element("div", { class: "scroll", tabindex: 0 }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)), ...more);
}

/** The changes that would lower memory most. @param {any[]} changes `changes` of plimsoll/explain/1 @param {(flag: string) => void} [take] what a click does */
export function changesSection(changes, take) {
  if (changes.length === 0) return section("What would lower memory", element("p", {}, "Nothing that was tried."));
  const rows = changes.map((change) => element("tr", { class: `verdict-${change.verdict}` },
    element("td", {}, take ? element("button", { type: "button", class: "take", onclick: () => take(change.flag) }, change.flag) : element("code", {}, change.flag)),
    element("td", { class: "number" }, `−${bytesText(change.saved_bytes)}`), element("td", { class: "number" }, bytesText(change.device_bytes)),
    element("td", { class: "word" }, change.verdict.replaceAll("_", " ")), element("td", { class: "number" }, change.step_time_ratio ? `step × ${change.step_time_ratio.toFixed(2)}` : "time not modelled")));
  return section("What would lower memory most, one change at a time", element("div", { class: "scroll", tabindex: 0 }, element("table", { class: "changes" }, element("tbody", {}, ...rows))));
}
