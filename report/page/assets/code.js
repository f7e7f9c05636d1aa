// Programs and patches.

const maxLines = 4000;
const programs = /\.(py|pyi|js|mjs|ts|tsx|go|rs|c|h|cc|cpp|java|rb|sh)$/;

// program shows code with line numbers.
function program(t) {
  const pre = make("pre", "code");
  const whole = (t.head || "");
  const numbered = make("code", "");
  put(numbered, whole);
  const gutter = make("span", "gutter", Array.from({length: Math.min(maxLines, whole.replace(/\n$/, "").split("\n").length)}, (_, i) => i + 1).join("\n"));
  gutter.setAttribute("aria-hidden", "true");
  pre.append(gutter, numbered);
  if (t.cut) numbered.append("\n", cutMark(t.cut), "\n");
  if (t.tail) put(numbered, t.tail);
  return fold(pre, whole.length, t);
}

// diff shows a patch: a box for each file, with the numbers of lines old and new.
function diff(t) {
  const box = make("div", "diff");
  let file = null, body = null, old = 0, now = 0, shown = 0;
  let added = 0, removed = 0, counts = null;
  const close = () => {
    if (counts) {
      counts.append(make("span", "plus", "+" + added), " ", make("span", "minus", "−" + removed));
    }
    added = removed = 0;
  };
  const open = (name) => {
    close();
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
    }
    put(c, text);
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
