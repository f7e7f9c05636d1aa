// The table of attempts. Rows are made as they are scrolled to.

const index = JSON.parse(byId("index").textContent);
index.rows.forEach((r, i) => {
  r.id = i;
  r.text = [r.task, r.status, r.family, r.category, r.reason, r.assurance, r.phase, r.message, index.runs[r.run]].join("\u0001").toLowerCase();
});
const letters = (i) => (i < 26 ? String.fromCharCode(65 + i) : String(i + 1));
// natural compares names as people do: task-2 comes before task-10.
const natural = new Intl.Collator("en", {numeric: true}).compare;
const ordered = [...index.rows].sort((a, b) => natural(a.task, b.task) || a.run - b.run || a.attempt - b.attempt);
ordered.forEach((r, i) => { r.at = i; });
const statuses = ["passed", "failed", "pending", "error"];
const several = {runs: index.runs.length > 1, attempts: index.rows.some((r) => r.attempt > 1)};

const columns = [
  {key: "status", name: "Status", cell: (r) => badge(r.status)},
  ...(several.runs ? [{key: "run", name: "Run", cell: (r) => make("span", "letter", letters(r.run)), number: true}] : []),
  {key: "task", name: "Task", cell: (r) => line("span", "task", r.task)},
  ...(several.attempts ? [{key: "attempt", name: "№", cell: (r) => String(r.attempt), number: true}] : []),
  {key: "family", name: "Family", cell: (r) => line("span", "", r.family)},
  {key: "category", name: "Category", cell: (r) => line("span", "", r.category)},
  {key: "reason", name: "Reason", cell: (r) => line("span", "reason", r.reason)},
  {key: "assurance", name: "Assurance", cell: (r) => line("span", "soft", r.assurance)},
  {key: "message", name: "Message", cell: (r) => line("span", "soft", r.message)},
  {key: "seconds", name: "Time", cell: (r) => seconds(r.seconds), number: true},
  {key: "tokens", name: "Tokens", cell: (r) => (r.tokens ? many(r.tokens) : "–"), number: true},
  {key: "memory", name: "Memory", cell: (r) => (r.memory ? size(r.memory) : "–"), number: true},
  {key: "tries", name: "Tries", cell: (r) => String(r.tries), number: true},
].filter((c) => ["status", "run", "task"].includes(c.key) || index.rows.some((r) => r[c.key])); // no empty columns

const known = (status) => (statuses.includes(status) ? status : "pending");
const badge = (status) => make("span", "badge " + known(status), status);

// view is what the table shows now.
const view = {rows: ordered, made: 0, at: -1, sort: "", down: false, query: ""};
const chunk = 150;

// parse takes a filter apart: key:value, key:"a value", and words.
function parse(query) {
  const terms = [];
  for (const m of query.matchAll(/(?:(status|family|category|reason|assurance|task|run|phase):)?(?:"([^"]*)"?|(\S+))/g)) {
    terms.push({key: m[1], exact: m[2] !== undefined, value: (m[2] ?? m[3]).toLowerCase()});
  }
  return terms;
}

function matches(r, terms) {
  return terms.every(({key, exact, value}) => {
    if (!key) return r.text.includes(value);
    const field = key === "run" ? letters(r.run) + "\u0001" + index.runs[r.run] : String(r[key]);
    return exact && key !== "run" ? field.toLowerCase() === value || (value.length > 0 && field.toLowerCase().startsWith(value) && field.includes('"')) : field.toLowerCase().includes(value);
  });
}

function filter(query) {
  view.query = query;
  const terms = parse(query);
  view.rows = ordered.filter((r) => matches(r, terms));
  sortRows();
  draw();
}

function sortRows() {
  const key = view.sort || "at", sign = view.down ? -1 : 1;
  const order = (r) => (key === "status" ? statuses.indexOf(r.status) : r[key]);
  view.rows.sort((a, b) => {
    const x = order(a), y = order(b);
    return sign * (typeof x === "number" ? x - y : natural(x, y)) || a.at - b.at;
  });
}

function sortBy(key) {
  if (view.sort !== key) { view.sort = key; view.down = columns.find((c) => c.key === key).number === true; }
  else if (view.down === (columns.find((c) => c.key === key).number === true)) view.down = !view.down;
  else { view.sort = ""; view.down = false; }
  sortRows();
  draw();
}

function draw() {
  byId("rows").replaceChildren();
  view.made = 0;
  view.at = -1;
  grow();
  byId("none").hidden = view.rows.length > 0;
  byId("shown").textContent = view.rows.length === index.rows.length ? `${index.rows.length} attempts` : `${view.rows.length} of ${index.rows.length} attempts`;
  drawHeads();
  drawChips();
}

// grow makes the next rows.
function grow() {
  const part = document.createDocumentFragment();
  const until = Math.min(view.rows.length, view.made + chunk);
  for (; view.made < until; view.made++) {
    const r = view.rows[view.made];
    const tr = make("tr", "");
    tr.dataset.at = view.made;
    for (const c of columns) {
      const td = make("td", c.number ? "num" : "");
      td.append(c.cell(r));
      tr.append(td);
    }
    part.append(tr);
  }
  byId("rows").append(part);
}

function drawHeads() {
  byId("heads").replaceChildren(...columns.map((c) => {
    const button = make("button", "", c.name);
    button.type = "button";
    button.addEventListener("click", () => sortBy(c.key));
    const th = make("th", c.number ? "num" : "", button);
    th.scope = "col";
    th.dataset.key = c.key;
    if (view.sort === c.key) th.setAttribute("aria-sort", view.down ? "descending" : "ascending");
    return th;
  }));
}

function drawChips() {
  const count = (s) => index.rows.filter((r) => r.status === s).length;
  byId("chips").replaceChildren(...statuses.filter(count).map((s) => {
    const term = `status:"${s}"`;
    const chip = make("button", "chip " + s, `${s} ${count(s)}`);
    chip.type = "button";
    chip.setAttribute("aria-pressed", String(view.query.includes(term)));
    chip.addEventListener("click", () => {
      const rest = view.query.replace(/status:"[^"]*"\s*/g, "").trim();
      ask(view.query.includes(term) ? rest : (term + " " + rest).trim());
    });
    return chip;
  }));
}

// ask puts a filter into its field, and applies it.
function ask(query) {
  byId("filter").value = query;
  filter(query);
}

// choose marks a row, and makes the rows up to it.
function choose(at) {
  if (view.rows.length === 0) return;
  at = Math.min(Math.max(at, 0), view.rows.length - 1);
  while (view.made <= at) grow();
  const rows = byId("rows").children;
  if (view.at >= 0) { rows[view.at].classList.remove("chosen"); rows[view.at].removeAttribute("aria-selected"); }
  view.at = at;
  rows[at].classList.add("chosen");
  rows[at].setAttribute("aria-selected", "true");
  rows[at].scrollIntoView({block: "nearest"});
}

byId("rows").addEventListener("click", (e) => {
  const tr = e.target.closest("tr");
  if (tr && getSelection().isCollapsed) location.hash = "a" + view.rows[+tr.dataset.at].id;
});
byId("filter").addEventListener("input", (e) => filter(e.target.value));
byId("table").parentElement.addEventListener("scroll", more);
addEventListener("scroll", more, {passive: true});
function more() {
  const last = byId("rows").lastElementChild;
  if (last && view.made < view.rows.length && last.getBoundingClientRect().top < innerHeight + 600) grow();
}
