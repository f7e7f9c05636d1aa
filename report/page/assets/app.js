// Which page is shown, and the keys.

const overviewTitle = document.title;

function route() {
  let hash = location.hash.slice(1);
  try { hash = decodeURIComponent(hash); } catch { /* it stays as it is */ }
  const attempt = /^a(\d+)$/.exec(hash);
  const found = attempt && show(+attempt[1]);
  byId("attempt").hidden = !found;
  byId("overview").hidden = Boolean(found);
  if (found) {
    scrollTo(0, 0);
    return;
  }
  byId("attempt").replaceChildren();
  document.title = overviewTitle;
  if (hash.startsWith("q=")) { ask(hash.slice(2)); byId("tasks").scrollIntoView(); }
  else if (hash === "tasks") {
    byId("tasks").scrollIntoView();
    if (view.at >= 0) choose(view.at);
  } else if (/^(compare|run-\d+)$/.test(hash) && byId(hash)) byId(hash).scrollIntoView();
  else if (hash === "") scrollTo(0, 0);
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  keep(root.dataset.theme = dark ? "light" : "dark");
}
// keep remembers the colours, where the viewer lets a file remember anything.
function keep(value) {
  try { if (value) localStorage.setItem("sbench-theme", value); return localStorage.getItem("sbench-theme"); } catch { return null; }
}

function pressed(e) {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const typing = e.target === byId("filter");
  const attempt = !byId("attempt").hidden;
  const keys = {
    "/": () => { if (attempt) location.hash = "tasks"; byId("overview").hidden = false; byId("filter").focus(); byId("filter").select(); },
    d: theme,
    Escape: () => {
      if (attempt) location.hash = "tasks";
      else if (byId("filter").value) ask("");
      else byId("filter").blur();
    },
    ArrowDown: () => { byId("filter").blur(); choose(view.at + 1); },
    ArrowUp: () => choose(view.at - 1),
    Home: () => choose(0),
    End: () => choose(view.rows.length - 1),
    Enter: () => { if (view.rows.length > 0 && (view.at >= 0 || typing)) location.hash = "a" + view.rows[Math.max(0, view.at)].id; },
    ArrowLeft: () => go(view.rows.indexOf(index.rows[+location.hash.slice(2)]) - 1),
    ArrowRight: () => go(view.rows.indexOf(index.rows[+location.hash.slice(2)]) + 1),
  };
  keys.j = keys.ArrowDown;
  keys.k = keys.ArrowUp;
  const here = typing ? ["Escape", "ArrowDown", "Enter"] : attempt ? ["/", "d", "Escape", "ArrowLeft", "ArrowRight"] : ["/", "d", "Escape", "ArrowDown", "ArrowUp", "j", "k", "Enter", ...(view.at >= 0 ? ["Home", "End"] : [])];
  if (!here.includes(e.key) || (e.key === "Enter" && !typing && e.target.closest("button, a, summary"))) return;
  e.preventDefault();
  keys[e.key]();
}

const remembered = keep("");
if (remembered === "dark" || remembered === "light") document.documentElement.dataset.theme = remembered;
byId("theme").addEventListener("click", theme);
addEventListener("keydown", pressed);
addEventListener("hashchange", route);
filter("");
route();
