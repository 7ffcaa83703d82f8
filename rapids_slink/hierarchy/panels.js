// The explorer's panels beside the map, as SVG in the page's own colours: the curve of settings, along which the cut is
// dragged, and the condensed tree. explorer.py has the traits that they read and set.

const HTML = "http://www.w3.org/1999/xhtml";
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 64, right: 16, top: 22, bottom: 40 };
const TICK_SPACE = { x: 60, y: 28 }; // pixels a tick at least
const LETTER = 6.5; // pixels

/** A new element within another. */
function add(parent, name, attributes = {}, text = "") {
  const element = document.createElementNS(parent.namespaceURI === HTML ? HTML : SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  parent.append(element);
  return element;
}

/** A number without the suffixes of SI: 0.2, 1,500, 3e-7. */
export function text(value) {
  const size = Math.abs(value);
  if (size && (size < 1e-4 || size >= 1e7)) return value.toExponential().replace("e+", "e");
  return Number(value.toPrecision(6)).toLocaleString("en-US", { maximumSignificantDigits: 6 });
}

/** From values to pixels and back. */
export function scale(low, high, first, last, isLog) {
  const to = isLog ? Math.log : (value) => value;
  const from = isLog ? Math.exp : (value) => value;
  const span = to(high) - to(low) || 1;
  const pixel = (value) => first + ((to(value) - to(low)) / span) * (last - first);
  const value = (place) => from(to(low) + ((place - first) / (last - first)) * span);
  return { low, high, isLog, pixel, value, length: Math.abs(last - first) };
}

/** Round values of an axis, at most one in `space` pixels. */
export function ticks({ low, high, isLog, length }, space) {
  const maxTicks = Math.max(2, Math.floor(length / space));
  const values = [];
  if (isLog) {
    for (const digits of [[1, 2, 5], [1, 3], [1]]) {
      values.length = 0;
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
        for (const digit of digits) values.push(Number(`${digit}e${power}`));
      const inside = values.filter((value) => value >= low && value <= high);
      if (inside.length <= maxTicks || digits.length === 1)
        return inside.filter((_, i) => i % Math.ceil(inside.length / maxTicks) === 0);
    }
  }
  const rough = (high - low || 1) / maxTicks;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  for (let i = Math.ceil(low / step); i * step <= high; i++) values.push(Number((i * step).toPrecision(12)));
  return values;
}

/** Axes with their names inside the panel: that of y above its axis, that of x below. */
function axes(svg, x, y, names, width, height) {
  const [bottom, middle] = [height - MARGIN.bottom, (MARGIN.left + width - MARGIN.right) / 2];
  const faint = { stroke: "currentColor", "stroke-opacity": 0.25 };
  if (x) {
    add(svg, "line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom, ...faint });
    for (const value of ticks(x, TICK_SPACE.x)) {
      const place = x.pixel(value);
      add(svg, "line", { x1: place, x2: place, y1: bottom, y2: bottom + 4, ...faint });
      const half = (text(value).length * LETTER) / 2; // the last one ends within the panel
      add(svg, "text", { x: Math.min(place, width - half), y: bottom + 17, "text-anchor": "middle" }, text(value));
    }
  }
  for (const value of ticks(y, TICK_SPACE.y)) {
    const place = y.pixel(value);
    add(svg, "line", { x1: MARGIN.left - 4, x2: width - MARGIN.right, y1: place, y2: place, ...faint, "stroke-opacity": 0.12 });
    add(svg, "text", { x: MARGIN.left - 8, y: place + 4, "text-anchor": "end" }, text(value));
  }
  add(svg, "text", { x: middle, y: height - 6, "text-anchor": "middle", "font-weight": 600 }, names[0]);
  add(svg, "text", { x: 4, y: 12, "font-weight": 600 }, names[1]);
}

/** Let an element be dragged: call `move` with the pointer's place from where it goes down to where it goes up. */
function drag(model, element, svg, move) {
  element.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const moved = (at) => {
      const box = svg.getBoundingClientRect();
      move(at.clientX - box.left, at.clientY - box.top);
      if (model.get("follows")) model.save_changes();
    };
    const dropped = () => {
      window.removeEventListener("pointermove", moved);
      window.removeEventListener("pointerup", dropped);
      window.removeEventListener("pointercancel", dropped);
      model.set("dragging", false);
      model.save_changes();
    };
    window.addEventListener("pointermove", moved);
    window.addEventListener("pointerup", dropped);
    window.addEventListener("pointercancel", dropped);
    model.set("dragging", true);
    model.save_changes();
    moved(event);
  });
}

/** Tell the kernel the colour of the page's text. */
function tellInk(model, element) {
  const parts = getComputedStyle(element).color.match(/[\d.]+/g).slice(0, 3);
  const ink = `#${parts.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
  if (model.get("ink") === ink) return;
  model.set("ink", ink);
  model.save_changes();
}

/** The curve, and the cut with its handle on the axis of settings. */
function drawCurve(model, svg, width, height) {
  const [low, high] = model.get("range");
  const xs = model.get("x");
  const ys = model.get("y");
  const x = scale(low, Math.max(high, low + 1), MARGIN.left, width - MARGIN.right, true);
  const isLog = model.get("is_log");
  const lowest = Math.min(...ys, isLog ? Infinity : 0);
  const y = scale(lowest, Math.max(...ys, lowest), height - MARGIN.bottom, MARGIN.top, isLog);
  axes(svg, x, y, model.get("names"), width, height);
  const color = model.get("colors");
  const points = xs.map((value, i) => `${x.pixel(value)},${y.pixel(ys[i])}`);
  add(svg, "polyline", { points: points.join(" "), fill: "none", stroke: color[0], "stroke-width": 2 });
  if (xs.length <= 60) xs.forEach((value, i) => add(svg, "circle", { cx: x.pixel(value), cy: y.pixel(ys[i]), r: 3, fill: color[0] }));
  const area = add(svg, "rect", { x: 0, y: MARGIN.top - 10, width, height: height - MARGIN.top, fill: "transparent", class: "slink-area" });
  const handle = add(svg, "g", {
    class: "slink-handle", role: "slider", tabindex: 0, "aria-label": model.get("names")[0], "aria-valuemin": low, "aria-valuemax": high,
  });
  const bottom = height - MARGIN.bottom;
  add(handle, "line", { y1: MARGIN.top - 6, y2: bottom, stroke: color[1], "stroke-width": 2 });
  add(handle, "circle", { cy: bottom, r: 7, fill: color[1], stroke: "white", "stroke-width": 1.5 });
  const show = () => {
    handle.setAttribute("transform", `translate(${x.pixel(Math.min(Math.max(model.get("value"), low), high))},0)`);
    handle.setAttribute("aria-valuenow", model.get("value"));
  };
  const set = (value) => {
    model.set("value", Math.round(Math.min(Math.max(value, low), high)));
    show();
  };
  for (const element of [area, handle]) drag(model, element, svg, (place) => set(x.value(place)));
  handle.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    set(model.get("value") + step);
    model.save_changes();
  });
  show();
  tellInk(model, svg);
  return { "change:value": show };
}

/** The bars of the condensed tree, in colours below the cut. */
function drawTree(model, svg, width, height) {
  const [low, high] = model.get("range");
  const bottom = height - MARGIN.bottom;
  const y = scale(low, high, bottom, MARGIN.top, model.get("is_log"));
  const x = scale(0, 1, MARGIN.left, width - MARGIN.right, false);
  axes(svg, null, y, model.get("names"), width, height);
  const clip = `slink-below-${Math.random().toString(36).slice(2)}`;
  const below = add(add(svg, "clipPath", { id: clip }), "rect", { x: 0, width, height });
  const outlines = add(svg, "g", { fill: "currentColor", "fill-opacity": 0.18 });
  const bars = add(svg, "g", { "clip-path": `url(#${clip})` });
  model.get("bars").forEach((corners, i) => {
    const points = corners.map(([part, at]) => `${x.pixel(part)},${y.pixel(Math.min(Math.max(at, low), high))}`).join(" ");
    const outline = add(outlines, "polygon", { points, stroke: "currentColor", "stroke-opacity": 0.3, "stroke-width": 0.5, class: "slink-bar" });
    add(outline, "title", {}, model.get("titles")[i]);
    outline.addEventListener("click", () => {
      model.set("clicked", [i, model.get("clicked")[1] + 1]);
      model.save_changes();
    });
    add(bars, "polygon", { points, "pointer-events": "none" });
  });
  const cut = add(svg, "g", { class: "slink-cut", style: "cursor: ns-resize" });
  const color = model.get("colors")[1];
  add(cut, "line", { x1: MARGIN.left, x2: width - MARGIN.right, stroke: color, "stroke-width": 2 });
  add(cut, "line", { x1: MARGIN.left, x2: width - MARGIN.right, stroke: "transparent", "stroke-width": 14 });
  const show = () => {
    const at = model.get("cut");
    const place = at === null ? MARGIN.top : y.pixel(Math.min(Math.max(at, low), high));
    cut.setAttribute("display", at === null ? "none" : "inline");
    cut.setAttribute("transform", `translate(0,${place})`);
    below.setAttribute("y", at === null ? 0 : place);
    const fills = model.get("fills");
    Array.from(bars.children).forEach((bar, i) => bar.setAttribute("fill", fills[i] || "none"));
  };
  drag(model, cut, svg, (_, place) => model.set("dragged", y.value(place)));
  show();
  return { "change:cut": show, "change:fills": show };
}

function render({ model, el }) {
  let listeners = {};
  const box = add(el, "div", { style: "width: 100%; overflow: hidden" });
  const stop = () => Object.entries(listeners).forEach(([name, call]) => model.off(name, call));
  const draw = () => {
    const width = Math.max(box.clientWidth, 180);
    const height = model.get("height");
    stop();
    box.replaceChildren();
    const svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ width, height, "font-size": 11, fill: "currentColor" })) svg.setAttribute(name, value);
    svg.style.cssText = "display: block; font-family: sans-serif; user-select: none; touch-action: none; color: inherit";
    box.append(svg);
    listeners = (model.get("kind") === "curve" ? drawCurve : drawTree)(model, svg, width, height);
    Object.entries(listeners).forEach(([name, call]) => model.on(name, call));
  };
  const size = new ResizeObserver(draw);
  size.observe(box);
  model.on("change:bars", draw);
  const theme = new MutationObserver(() => model.get("kind") === "curve" && requestAnimationFrame(() => tellInk(model, box)));
  for (const page of [document.documentElement, document.body]) theme.observe(page, { attributes: true });
  return () => {
    size.disconnect();
    theme.disconnect();
    model.off("change:bars", draw);
    stop();
  };
}

export default { render };
