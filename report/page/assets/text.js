// Texts of records are hostile: they become text nodes, never markup.

const byId = (id) => document.getElementById(id);

// make returns an element. Attributes are names and values that this script chose.
function make(tag, className, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  for (const c of children) e.append(c); // a string becomes a text node
  return e;
}

// Control characters, such that turn the reading order around and such that cannot
// be seen.
const hidden = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|\udb40[\udc00-\udfff]|\r(?!\n)/g;
// Colours of terminals say nothing here.
const colours = /\u001b\[[0-9;]*m/g;

function code(c) {
  const n = c.codePointAt(0);
  if (n === 0x1b) return "esc";
  return (n < 256 ? "x" : "u+") + n.toString(16).padStart(2, "0");
}

// put appends a text, with a visible mark for every hidden character.
function put(parent, text) {
  text = String(text).replace(colours, "").replace(/\r\n/g, "\n");
  let from = 0;
  for (const m of text.matchAll(hidden)) {
    if (m.index > from) parent.append(text.slice(from, m.index));
    parent.append(make("span", "hidden", code(m[0])));
    from = m.index + m[0].length;
  }
  parent.append(text.slice(from));
  return parent;
}

const visible = (text) => String(text).replace(hidden, (c) => "\\" + code(c));

// line is a text on one line, for names.
const line = (tag, className, text) => put(make(tag, className), String(text).replace(/[\n\t]+/g, " "));

// cutMark stands for what was left out of a text.
function cutMark(bytes) {
  return make("span", "cut", size(bytes) + " left out here");
}

const empty = (t) => !t || (!t.head && !t.tail && !t.cut);
const whole = (t) => (t.head || "") + (t.tail || "");

// block shows a text as it is.
function block(t, className) {
  const pre = make("pre", className || "");
  put(pre, t.head || "");
  if (t.cut) pre.append("\n", cutMark(t.cut), "\n");
  if (t.tail) put(pre, t.tail);
  return fold(pre, (t.head || "").length + (t.tail || "").length, t);
}

// fold makes a long block low, until it is wanted whole.
function fold(pre, length, t) {
  const lines = whole(t).split("\n").length;
  if (lines <= 24 && length < 5000) return pre;
  const box = make("div", "fold", pre);
  const more = make("button", "more", `show all ${lines} lines`);
  more.type = "button";
  more.addEventListener("click", () => {
    more.textContent = box.classList.toggle("open") ? "show less" : `show all ${lines} lines`;
  });
  box.append(more);
  return box;
}

function scaled(n, step, units) {
  let i = 0;
  for (; n >= step * 0.9995 && i < units.length - 1; i++) n /= step;
  return (i === 0 ? n.toFixed(0) : n < 9.995 ? n.toFixed(2) : n < 99.95 ? n.toFixed(1) : n.toFixed(0)) + units[i];
}
const size = (n) => scaled(n, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
const many = (n) => scaled(n, 1000, ["", " k", " M", " G", " T"]);
function seconds(s) {
  if (!(s > 0)) return "–";
  if (s < 1) return (1000 * s).toFixed(0) + " ms";
  if (s < 99.95) return (s < 9.995 ? s.toFixed(2) : s.toFixed(1)) + " s";
  const whole = Math.round(s < 3600 ? s : s / 60);
  return Math.floor(whole / 60) + ":" + String(whole % 60).padStart(2, "0") + (s < 3600 ? " min" : " h");
}
