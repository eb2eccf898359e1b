// Figures and times as people read them.

const GIB = 2 ** 30;
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** `17.5 GiB`, or a dash where nothing is known. */
export function gib(bytes, unit = "GiB") {
  return bytes === null ? "–" : `${(bytes / GIB).toFixed(1)} ${unit}`;
}

/** `5.0 of 17.5 GiB` */
export function gibOf(part, whole) {
  return whole === null ? gib(part) : `${(part / GIB).toFixed(1)} of ${gib(whole)}`;
}

/** `4 min`: one unit, since nobody reads the second one. Empty for no time. */
export function age(time, now) {
  const at = Date.parse(time);
  if (Number.isNaN(at)) return "";
  const seconds = Math.max(0, Math.floor((now - at) / 1000));
  const [size, unit] = UNITS.find(([size]) => seconds >= size) ?? UNITS[3];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** `1 engine`, `2 engines` */
export function many(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** `2 running, 1 waiting`; a dash for an engine that cannot be asked. */
export function requests(engine) {
  if (engine.requestsRunning === null || engine.requestsWaiting === null) return "–";
  if (!engine.requestsRunning && !engine.requestsWaiting) return "idle";
  return `${engine.requestsRunning} running` + (engine.requestsWaiting ? `, ${engine.requestsWaiting} waiting` : "");
}
