// Programs and patches, coloured.

const words = new Set(("and as assert async await break case catch class const continue def del elif else except export extends finally for from func function " +
  "global go if import in interface is lambda let new nonlocal not or package pass raise range return self static struct switch try type var while with yield " +
  "True False None true false null nil fn impl match mut pub use do done then fi esac echo").split(" "));
// The last alternative matches strings that do not end, so that none is searched for an end twice.
const tokens = /("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`\n]*`)|(#[^\n]*|\/\/[^\n]*)|\b(\d[\d_.a-fxA-FX]*)\b|([A-Za-z_]\w*)|"(?:\\.|[^"\\\n])*|'(?:\\.|[^'\\\n])*|`[^`\n]*/g;

// colour appends a piece of a program.
function colour(parent, text) {
  let from = 0;
  const add = (until, className, piece) => {
    if (until > from) put(parent, text.slice(from, until));
    if (className) parent.append(put(make("span", className), piece));
    from = until + piece.length;
  };
  for (const m of text.matchAll(tokens)) {
    const kind = m[1] ? "str" : m[2] ? "com" : m[3] ? "num" : words.has(m[4]) ? "key" : m[4] && text[m.index + m[0].length] === "(" ? "fun" : "";
    if (kind) add(m.index, kind, m[0]);
  }
  add(text.length, "", "");
  return parent;
}

const maxLines = 4000;
const programs = /\.(py|pyi|js|mjs|ts|tsx|go|rs|c|h|cc|cpp|java|rb|sh)$/;

// program shows code with line numbers.
function program(t) {
  const pre = make("pre", "code");
  const whole = (t.head || "");
  const numbered = make("code", "");
  colour(numbered, whole);
  const gutter = make("span", "gutter", Array.from({length: Math.min(maxLines, whole.replace(/\n$/, "").split("\n").length)}, (_, i) => i + 1).join("\n"));
  gutter.setAttribute("aria-hidden", "true");
  pre.append(gutter, numbered);
  if (t.cut) numbered.append("\n", cutMark(t.cut), "\n");
  if (t.tail) colour(numbered, t.tail);
  return fold(pre, whole.length, t);
}

// diff shows a patch: a box for each file, with the numbers of lines old and new.
function diff(t) {
  const box = make("div", "diff");
  let file = null, body = null, plain = false, old = 0, now = 0, shown = 0;
  let added = 0, removed = 0, counts = null;
  const close = () => {
    if (counts) {
      counts.append(make("span", "plus", "+" + added), " ", make("span", "minus", "−" + removed));
    }
    added = removed = 0;
  };
  const open = (name) => {
    close();
    plain = !programs.test(name);
    counts = make("span", "counts");
    file = make("details", "file", make("summary", "", line("span", "path", name), counts));
    file.open = true;
    body = make("div", "lines");
    file.append(body);
    box.append(file);
  };
  const row = (className, a, b, text) => {
    const r = make("div", "dl " + className, make("span", "ln", a), make("span", "ln", b));
    const c = make("span", "lc");
    if (className === "add" || className === "del" || className === "ctx") {
      c.append(make("span", "sign", className === "add" ? "+" : className === "del" ? "−" : " "));
      (plain ? put : colour)(c, text);
    } else put(c, text);
    r.append(c);
    body.append(r);
  };
  const part = (text) => {
    for (const l of text.replace(/\n$/, "").split("\n")) {
      if (++shown > maxLines) return;
      const header = /^diff --git a\/(.*) b\/(.*)$/.exec(l);
      const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(l);
      if (header) { open(header[2]); old = now = 0; continue; }
      if (!body) open("patch");
      if (hunk) { old = +hunk[1]; now = +hunk[2]; row("hunk", "", "", l); }
      else if (!old && !now) { if (!/^(index|---|\+\+\+) /.test(l)) row("meta", "", "", l); }
      else if (l[0] === "+") { added++; row("add", "", String(now++), l.slice(1)); }
      else if (l[0] === "-") { removed++; row("del", String(old++), "", l.slice(1)); }
      else if (l[0] === " " || l === "") row("ctx", String(old++), String(now++), l.slice(1));
      else row("meta", "", "", l);
    }
  };
  part(t.head || "");
  if (t.cut) { if (!body) open("patch"); body.append(cutMark(t.cut)); }
  if (t.tail) part(t.tail);
  close();
  if (shown > maxLines) box.append(make("p", "note", `Only the first ${maxLines} lines are shown.`));
  return box;
}
