// Elements without a framework. Text is always text: names come from files.

/**
 * @param {string} name
 * @param {Record<string, string | number | boolean | ((event: any) => void) | undefined>} [attributes] `on…`: listeners; undefined and false: left out
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function element(name, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (fill(document.createElement(name), attributes, children));
}

/**
 * @param {string} name
 * @param {Record<string, string | number | boolean | ((event: any) => void) | undefined>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function drawn(name, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children));
}

/**
 * @param {Element} target
 * @param {Record<string, string | number | boolean | ((event: any) => void) | undefined>} attributes
 * @param {(Node | string)[]} children
 */
function fill(target, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") target.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) target.setAttribute(key, value === true ? "" : String(value));
  }
  target.append(...children);
  return target;
}

/** A part of a report under a heading. @param {string} title @param {...(Node | string)} children */
export function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}
