// Trees of elements, and how one becomes the next without losing focus, scroll or a transition under way.

/** An element. Properties are attributes; `style` is an object set property by property, which the page's policy
 *  allows where it forbids style attributes; `key` tells siblings apart. Children are nodes or text, never markup. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "style") Object.assign(element.style, (element.styled = value));
    else if (name === "key") element.key = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Make `parent` hold what `wanted` says, keeping every element that is there already. */
export function show(parent, wanted) {
  const kept = new Map();
  const unnamed = [];
  for (const node of parent.childNodes) (node.key === undefined ? unnamed.push(node) : kept.set(node.key, node));
  const next = [wanted].flat(Infinity).filter((node) => node !== null && node !== undefined && node !== "");
  const nodes = next.map((node) => {
    const fresh = typeof node === "string" ? document.createTextNode(node) : node;
    const old = fresh.key === undefined ? unnamed.shift() : kept.get(fresh.key);
    return old !== undefined && isAlike(old, fresh) ? morph(old, fresh) : fresh;
  });
  const stays = new Set(nodes);
  for (const node of [...parent.childNodes]) if (!stays.has(node)) node.remove();
  nodes.forEach((node, place) => {
    const there = parent.childNodes[place];
    if (there !== node) parent.insertBefore(node, there ?? null);
  });
}

/** As `show`, for many things of one kind. What says the same as before is neither drawn nor looked at: `sign` gives
 *  a text that differs when the drawing would. */
export function showAll(parent, things, keyOf, sign, draw) {
  const kept = new Map();
  for (const node of [...parent.childNodes]) node.key === undefined ? node.remove() : kept.set(node.key, node);
  let place = parent.firstChild;
  for (const thing of things) {
    const key = keyOf(thing);
    const said = sign(thing);
    let node = kept.get(key);
    kept.delete(key);
    if (node === undefined) node = draw(thing);
    else if (node.said !== said) morph(node, draw(thing));
    node.key = key;
    node.said = said;
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of kept.values()) node.remove();
}

function isAlike(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName;
}

function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (fresh.styled) Object.assign(old.style, fresh.styled);
  show(old, [...fresh.childNodes]);
  return old;
}
