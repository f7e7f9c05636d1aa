// While a server shows the page, it is loaded again when there are more records. What was
// being looked at stays: an attempt until it is left, the filter and the place on the page.

async function follow() {
  const say = (text) => { byId("live").textContent = text; };
  for (;;) {
    const answer = await fetch("wait?since=" + encodeURIComponent(index.live)).catch(() => null);
    if (!answer || !answer.ok) { say("ended: not live any more"); return; }
    if (answer.status === 200) break;
  }
  const again = () => {
    if (!byId("attempt").hidden) { say("live: there is more"); return; }
    history.replaceState({query: view.query, sort: view.sort, down: view.down, y: scrollY}, "");
    location.reload();
  };
  addEventListener("hashchange", again);
  again();
}

if (index.live) {
  const before = history.state;
  if (before) {
    view.sort = before.sort;
    view.down = before.down;
    ask(before.query);
    scrollTo(0, before.y);
  }
  follow();
}
