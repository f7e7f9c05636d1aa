// The page of one attempt, made when it is asked for.

function show(id) {
  const r = index.rows[id];
  const data = byId("d" + id);
  const page = byId("attempt");
  if (!r || !data) return false;
  const d = JSON.parse(data.textContent);
  page.replaceChildren(headOf(r), tilesOf(r, d));
  if (r.status !== "passed" && (r.reason || d.message)) page.append(failureOf(r, d));
  if (d.missing) page.append(section("missing", "What could not be read", ...d.missing.map((m) => line("p", "note", m))));
  const parts = [promptOf(r, d), traceOf(d), candidateOf(d), verifierOf(d), egressOf(d), usageOf(r, d), producerOf(d), provenanceOf(d)].filter(Boolean);
  const jump = make("nav", "jump");
  jump.setAttribute("aria-label", "Parts");
  for (const p of parts) {
    const b = make("button", "", p.dataset.name);
    b.type = "button";
    b.addEventListener("click", () => { p.open = true; p.scrollIntoView(); });
    jump.append(b);
  }
  page.append(jump, ...parts);
  document.title = visible(r.task).slice(0, 80) + " · sbench report";
  return true;
}

function headOf(r) {
  const where = view.rows.indexOf(r);
  const step = (to, name, key) => {
    const b = make("button", "step", name);
    b.type = "button";
    b.disabled = !view.rows[to] || where < 0;
    b.title = key;
    b.addEventListener("click", () => go(to));
    return b;
  };
  const back = make("a", "step", "↑ All attempts");
  back.href = "#tasks";
  const names = [r.family, r.category].filter(Boolean).join(" · ");
  return make("div", "attempt-head",
    make("div", "steps", back, step(where - 1, "← Previous", "←"), step(where + 1, "Next →", "→"),
      make("span", "soft", where < 0 ? "" : `${where + 1} of ${view.rows.length}`)),
    make("h1", "", badge(r.status), " ", line("span", "", r.task)),
    line("p", "soft", names + (several.attempts ? ` · attempt ${r.attempt}` : "") + (several.runs ? ` · run ${letters(r.run)}: ${index.runs[r.run]}` : "")));
}

// go shows another row of the table.
function go(at) {
  if (!view.rows[at]) return;
  choose(at);
  location.replace("#a" + view.rows[at].id);
}

function tilesOf(r, d) {
  const tiles = make("dl", "tiles card");
  const add = (name, value, more) => {
    const dd = make("dd", "", value);
    if (more) dd.append(make("small", "", " " + more));
    tiles.append(make("div", "", make("dt", "", name), dd));
  };
  add("time", seconds(r.seconds));
  add("producer", seconds(d.times.producer));
  add("verifier", seconds(d.times.verifier));
  if (r.tokens) {
    add("tokens read", many(r.tokens - r.output), many(r.cached) + " cached");
    add("tokens written", many(r.output));
  }
  if (r.memory) add("peak memory", size(r.memory));
  if (d.egress) add("requests out", String(d.egress.allowed), d.egress.denied ? d.egress.denied + " denied" : "");
  add("tries", String(r.tries));
  return tiles;
}

function failureOf(r, d) {
  return make("div", "failure " + known(r.status), line("b", "", r.reason || r.status), r.phase ? line("span", "soft", " in phase " + r.phase) : "",
    d.message ? line("p", "", d.message) : "");
}

// section is a part that folds.
function section(name, title, ...children) {
  const s = make("details", "card part " + name, make("summary", "", make("h2", "", title)), ...children);
  s.dataset.name = title;
  s.open = true;
  return s;
}

function promptOf(r, d) {
  const values = once(empty(d.prompt) ? d.public || [] : fields(d.prompt));
  if (!values.length) return null;
  const code = (v) => /code|patch|diff/i.test(v.name) ||
    (r.family === "code_completion" && /^((async def|def|class|import|func|function|package|#include|fn) |from \S+ import )/m.test(whole(v.text)));
  return section("prompt", empty(d.prompt) ? "Task" : "Prompt",
    ...values.flatMap((v) => [v.name ? line("h3", "", v.name) : "", code(v) ? program(v.text) : block(v.text, "prose")]));
}

// fields divides a prompt at its headings.
function fields(t) {
  if (t.cut) return [{name: "", text: t}];
  const pieces = ["", ...t.head.split(/^## (.+)$/m)];
  const list = [];
  for (let i = 0; i < pieces.length; i += 2) list.push({name: pieces[i], text: {head: pieces[i + 1].replace(/^\n+|\s+$/g, "")}});
  return list.filter((v) => v.name || v.text.head);
}

// once leaves out values that another one repeats, or contains if they are long.
function once(list) {
  const texts = list.map((v) => whole(v.text).trim());
  return list.filter((_, i) => !texts.some((t, j) => j !== i && (t === texts[i] ? j < i : texts[i].length > 80 && t.includes(texts[i]))));
}

const glyphs = {message: "●", thinking: "∴", command: "$", tool: "⚙", files: "±", note: "·", error: "!", raw: "?"};

function traceOf(d) {
  if (!d.trace || d.trace.steps.length === 0) return null;
  const list = make("ol", "trace");
  d.trace.steps.forEach((s, i) => {
    if (d.trace.cut && i === (d.trace.at || 0)) list.append(make("li", "gap", `${d.trace.cut} steps left out here`));
    list.append(stepOf(s));
  });
  const commands = d.trace.steps.filter((s) => s.kind === "command").length;
  const s = section("trace-part", "Agent trace", list);
  s.querySelector("summary").append(make("span", "soft", `${d.trace.steps.length + (d.trace.cut || 0)} steps, ${commands} commands shown`));
  return s;
}

function stepOf(s) {
  const kind = Object.hasOwn(glyphs, s.kind) ? s.kind : "raw";
  const li = make("li", "s " + kind + (s.failed || s.exit ? " failed" : ""));
  const glyph = make("span", "glyph", glyphs[kind]);
  glyph.title = kind;
  li.append(glyph);
  const body = make("div", "body");
  if (s.title) body.append(line("span", "title", s.title));
  if (!empty(s.text)) body.append(block(s.text, kind === "message" || kind === "thinking" ? "prose" : ""));
  if (s.exit) body.append(make("span", "exit", "exit " + s.exit));
  if (s.output && !empty(s.output)) {
    const out = block(s.output, "output");
    body.append(out);
  }
  li.append(body);
  return li;
}

function candidateOf(d) {
  const c = d.candidate;
  const read = d.read ? [make("h3", "", "what was read"), block(d.read.text), line("p", "note", d.read.rule ? "by the rule " + d.read.rule : "by no rule")] : [];
  if (c.patch) return section("candidate", "Candidate: a patch", empty(c.patch) ? make("p", "note", "The patch is empty.") : diff(c.patch));
  if (c.text) return section("candidate", c.code ? "Candidate: a program" : "Candidate: a text", c.code ? program(c.text) : block(c.text, "prose answer"), ...read);
  if (!c.folder) return null;
  const list = make("div", "files");
  for (const f of c.files || []) {
    const entry = make("details", "entry", make("summary", "", line("span", "path", f.path + (f.link !== undefined ? " → " + f.link : "")), make("span", "soft", f.link !== undefined ? "link" : size(f.size)), make("span", "soft mode", f.mode)));
    if (f.text) { entry.append(programs.test(f.path) ? program(f.text) : block(f.text)); }
    else entry.classList.add("leaf");
    list.append(entry);
  }
  if (c.more) list.append(make("p", "note", "There are more files."));
  const s = section("candidate", "Candidate: a directory", list);
  s.querySelector("summary").append(line("span", "soft", c.folder));
  return s;
}

// streams are what a process left, and its logs beside the records.
function streams(o, logs) {
  const children = [];
  if (!empty(o.stdout)) children.push(make("h3", "", "standard output"), block(o.stdout));
  if (!empty(o.stderr)) children.push(make("h3", "", "standard error"), block(o.stderr));
  if (o.metadata) children.push(make("h3", "", "how it ended"), values(o.metadata));
  for (const l of logs) children.push(line("h3", "", l.name), block(l.text));
  return children;
}

const ofVerifier = (l) => l.name.startsWith("checker-");

function verifierOf(d) {
  const children = streams(d.verifier, (d.logs || []).filter(ofVerifier));
  if (d.private === "withheld") children.push(make("p", "note", "What the verifier printed can contain hidden tests, and is not in this page. With --private, sbench report and sbench view show it."));
  return children.length ? section("verifier", "Verifier", ...children) : null;
}

function producerOf(d) {
  const children = streams(d.producer, (d.logs || []).filter((l) => !ofVerifier(l)));
  if (!children.length) return null;
  const s = section("producer", "Producer's output", ...children);
  s.open = false;
  return s;
}

function egressOf(d) {
  if (!d.egress) return null;
  const head = make("tr", "", ...["", "Time", "Kind", "To", "What", "Out", "In", "Took"].map((n) => make("th", "", n)));
  const body = make("tbody", "");
  for (const e of d.egress.entries) {
    const what = [e.method, e.path, e.status, e.model, e.reason, e.rule && "rule " + e.rule, e.usage && `${many(e.usage.input)} in, ${many(e.usage.output)} out`, e.stripped && "stripped " + e.stripped.join(", ")].filter(Boolean).join(" · ");
    const verdict = ["allow", "deny"].includes(e.verdict) ? e.verdict : "error";
    body.append(make("tr", e.earlier ? "earlier" : "", make("td", "", make("span", "badge " + verdict, verdict)), make("td", "", e.at.slice(11, 23)), line("td", "", e.kind),
      line("td", "", e.host + (e.port ? ":" + e.port : "")), line("td", "", what + (e.earlier ? " · of an earlier try" : "")),
      make("td", "num", size(e.up)), make("td", "num", size(e.down)), make("td", "num", seconds(e.duration_ms / 1000))));
  }
  const s = section("egress", "Network", make("div", "scroll", make("table", "", make("thead", "", head), body)));
  s.querySelector("summary").append(make("span", "soft", `${d.egress.allowed} allowed, ${d.egress.denied} denied, ${d.egress.errors} errors`));
  if (d.egress.more) s.append(make("p", "note", `${d.egress.more} more in egress.jsonl`));
  return s;
}

// values shows an object's fields.
function values(v) {
  if (v === null || typeof v !== "object") return line("p", "mono", v === null ? "–" : v);
  const dl = make("dl", "values");
  for (const [key, value] of Object.entries(v)) {
    const inner = value !== null && typeof value === "object" && !Array.isArray(value);
    const text = /bytes$|^memory$/.test(key) && typeof value === "number" ? size(value) : key === "cpu_ns" ? seconds(value / 1e9) : /seconds$/.test(key) && typeof value === "number" ? seconds(value) : Array.isArray(value) ? value.map((x) => (typeof x === "object" ? JSON.stringify(x) : x)).join(", ") : value;
    dl.append(line("dt", "", key.replaceAll("_", " ")), inner ? make("dd", "", values(value)) : line("dd", "", text));
  }
  return dl;
}

function usageOf(r, d) {
  const children = [];
  const limit = d.limits && d.limits.limits;
  const meters = make("div", "rows");
  const meter = (name, used, of, write) => {
    if (!(used > 0) || !(of > 0)) return;
    const bar = document.createElement("meter");
    bar.max = of; bar.value = Math.min(used, of); bar.high = 0.8 * of; bar.low = 0.8 * of; bar.optimum = 0;
    meters.append(make("div", "r", make("span", "l", name), bar, make("span", "n", `${write(used)} of ${write(of)}`)));
  };
  if (limit) {
    meter("memory", r.memory, limit.memory, size);
    meter("time", d.times.producer, d.limits.timeout_seconds, seconds);
    const u = d.producer.metadata && d.producer.metadata.usage;
    if (u) meter("processes", u.peak_pids, limit.pids, String);
  }
  if (meters.children.length) children.push(meters);
  if (d.limits) children.push(values(d.limits));
  return section("usage", "Limits and usage", ...children);
}

function provenanceOf(d) {
  const dl = make("dl", "values mono");
  for (const [name, value] of d.facts) dl.append(line("dt", "", name), line("dd", "", value));
  const children = [dl];
  if (d.tries.length > 1) {
    const body = make("tbody", "");
    for (const t of d.tries) body.append(make("tr", "", make("td", "num", String(t.line)), make("td", "", badge(t.status)), line("td", "", t.reason), line("td", "", t.started), make("td", "num", seconds(t.seconds))));
    children.unshift(make("h3", "", "Tries; the last one counts"), make("div", "scroll", make("table", "", make("thead", "", make("tr", "", ...["Line", "Status", "Reason", "Started", "Time"].map((n) => make("th", "", n)))), body)));
  }
  return section("provenance", "Provenance", ...children);
}
