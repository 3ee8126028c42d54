// Which page is shown, the bar above it, keys, light and dark.
const KEYS = [["j, k", "next and previous conversation"], ["/", "search"], ["c, C", "colour by the next, the previous quantity"], ["b", "put the next thing beside it"],
  ["← → ↑ ↓", "inside a reply: from token to token"], ["1 to 3", "the pages"], ["t", "light, dark, or as the system"], ["?", "this help"], ["Esc", "close it; leave a field"]];
const SCROLLED = ["list", "detail"]; // boxes that scroll by themselves
let drawn = { page: "", link: "" };

function pages() {
  const found = [];
  if (index.studies.length) found.push(["study", "Study"]);
  else found.push(["summary", "What improved"]);
  found.push(["run", index.runs.length > 1 ? "Runs" : "Run"]);
  if (rows.length) found.push(["conversations", "Conversations"]);
  return found;
}

function drawBar(page) {
  const theme = h("button", { type: "button", class: "quiet", id: "theme", onclick: turnTheme }, "colours: " + themeWords());
  const help = h("button", { type: "button", class: "quiet", "aria-label": "Help: keys", onclick: toggleHelp }, "?");
  document.getElementById("bar").replaceChildren(
    h("span", { class: "brand" }, "smopd"), h("span", { class: "title" }, short(index.title, 60)),
    h("nav", { "aria-label": "Pages" }, pages().map(([key, words]) => h("a", { id: "nav-" + key, href: freshLink({ page: key }), "aria-current": key === page ? "page" : null }, words))), theme, help);
}

function themeWords() {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || theme === "light" ? theme : "auto";
}

function turnTheme() {
  const next = { auto: "dark", dark: "light", light: "" }[themeWords()];
  if (next) document.documentElement.dataset.theme = next; else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("smopd-theme", next); } catch { /* not allowed everywhere */ }
  document.getElementById("theme").textContent = "colours: " + themeWords();
  announce("colours: " + themeWords());
}

function toggleHelp() {
  const there = document.getElementById("help");
  if (there) { there.close(); there.remove(); return; }
  const dialog = h("dialog", { id: "help", "aria-label": "Keys" }, h("h2", {}, "Keys"),
    h("dl", { class: "facts" }, KEYS.map(([key, words]) => h("div", { class: "fact" }, h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)))),
    h("p", { class: "muted" }, "The address of this page says what is shown: a copied link restores it. smopd " + index.version),
    h("button", { type: "button", onclick: toggleHelp }, "Close"));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}

async function shown() {
  const state = readState(), page = state.page || (state.c ? "conversations" : pages()[0][0]);
  const main = document.getElementById("main"), link = location.hash;
  keepingFocus(() => drawBar(page));
  drawn.link = link;
  document.title = (pages().find(([key]) => key === page) || ["", ""])[1] + " · " + short(index.title, 60) + " · smopd";
  if (page !== "conversations") {
    main.className = "";
    main.replaceChildren(page === "run" ? runPage() : page === "study" && index.studies.length ? studyPage() : summaryPage());
    if (drawn.page !== page) window.scrollTo(0, 0);
    drawn.page = page;
    return;
  }
  listed = await filtered(state);
  if (drawn.link !== link) return; // somebody went on meanwhile
  keepInSight(state);
  if (drawn.page !== page || !document.getElementById("list")) {
    main.replaceChildren(h("h1", { class: "hidden" }, "Conversations"), h("div", { id: "side" }), h("div", { id: "detail" }),
      h("aside", { id: "panel-box", tabindex: "0", "aria-label": "The token looked at" }, h("div", { id: "panel" })));
    drawn.page = page;
  }
  const row = byKey.get(state.c);
  // The first one is opened at once, but not where it would hide the list.
  if (!listed.includes(row) && listed.length && !matchMedia("(max-width: 44rem)").matches) {
    history.replaceState(null, "", linkTo({ c: keyOf(listed[0]), t: "" }, state));
    await shown();
    return;
  }
  main.className = "looking" + (row ? " open" : ""); // first, since it decides what scrolls
  keepingFocus(() => drawSide(state));
  if (row) await drawConversation(state, row, link);
  else { document.getElementById("detail").replaceChildren(h("p", { class: "muted" }, "Choose a conversation.")); document.getElementById("panel").replaceChildren(); opened = { key: "" }; }
}

function drawSide(state) {
  const side = document.getElementById("side"), typed = document.activeElement?.id === "search" ? document.activeElement : null;
  const list = h("ol", { id: "list", "aria-label": "Conversations" });
  const top = document.getElementById("list")?.scrollTop || 0;
  fillList(list, state);
  side.replaceChildren(filterBar(state), h("p", { class: "count", id: "count", role: "status" }, listed.length + " of " + rows.length + " conversations"), list);
  list.scrollTop = top;
  list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  if (typed) {
    const search = document.getElementById("search"); // somebody may have typed on meanwhile
    search.value = typed.value;
    search.setSelectionRange(typed.selectionStart, typed.selectionEnd);
  }
}

async function drawConversation(state, row, link) {
  const detail = document.getElementById("detail");
  if (opened.key === state.c && opened.beside === state.beside && opened.by !== state.by) {
    opened.by = state.by;
    recolour();
    const block = document.querySelector(".tokens");
    if (block) document.getElementById("legend")?.replaceChildren(legend(quantityOf(state, block.tokens.trained), block.tokens.trained));
    const select = document.getElementById("by");
    if (select && QUANTITIES[state.by]) select.value = state.by;
    return;
  }
  if (opened.key === state.c && opened.beside === state.beside && detail.querySelector(".conversation")) { pointTo(state); return; }
  let page;
  try { page = await conversationPage(state, row); } catch (error) { page = h("p", { class: "muted", role: "alert" }, "This conversation cannot be read: " + error.message); }
  if (drawn.link !== link) return;
  const same = opened.key === state.c;
  opened = { key: state.c, beside: state.beside, by: state.by };
  keepingFocus(() => detail.replaceChildren(page));
  if (!same) detail.scrollTop = 0;
  pointTo(state);
  announce("conversation " + short(row.id, 60));
}

function cycle(id, by) {
  const select = document.getElementById(id);
  if (!select) return;
  const next = (select.selectedIndex + by + select.options.length) % select.options.length;
  go({ [id]: select.options[next].value }, true);
  announce(select.options[next].textContent);
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape" && field) { event.target.blur(); return; }
  if (field || document.getElementById("help")?.open && event.key !== "?") return;
  const number = Number(event.key) - 1;
  if (event.key === "j") walk(1);
  else if (event.key === "k") walk(-1);
  else if (event.key === "/") { event.preventDefault(); go({ page: "conversations" }); setTimeout(() => document.getElementById("search")?.focus(), 0); }
  else if (event.key === "?") toggleHelp();
  else if (event.key === "c" || event.key === "C") cycle("by", event.key === "c" ? 1 : -1);
  else if (event.key === "b") cycle("beside", 1);
  else if (event.key === "t") turnTheme();
  else if (pages()[number]) go({ ...DEFAULTS, page: pages()[number][0] });
}

// A page that is read while a run goes on: loaded anew now and then, and not under somebody's hands.
function reloadLater() {
  setTimeout(() => {
    const busy = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName) || document.getElementById("help");
    if (busy) { reloadLater(); return; }
    try { sessionStorage.setItem("smopd-place", JSON.stringify([location.hash, window.scrollY, ...SCROLLED.map((id) => document.getElementById(id)?.scrollTop || 0)])); } catch { /* not allowed everywhere */ }
    location.reload();
  }, 1000 * index.live);
}

function returnToPlace() {
  let place = null;
  try { place = JSON.parse(sessionStorage.getItem("smopd-place")); sessionStorage.removeItem("smopd-place"); } catch { /* not allowed everywhere */ }
  if (!place || place[0] !== location.hash) return;
  window.scrollTo(0, place[1]);
  SCROLLED.forEach((id, k) => { const box = document.getElementById(id); if (box) box.scrollTop = place[2 + k]; });
}

async function begin() {
  try { const theme = localStorage.getItem("smopd-theme"); if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme; } catch { /* not allowed everywhere */ }
  document.getElementById("skip").addEventListener("click", () => document.getElementById("main").focus());
  index = await jsonOf("index");
  rows = makeRows(index.rows);
  indexRows();
  window.addEventListener("hashchange", shown);
  document.addEventListener("keydown", pressed);
  await shown();
  document.documentElement.dataset.ready = Math.ceil(performance.now()); // milliseconds after it was asked for
  if (index.live) { returnToPlace(); reloadLater(); }
}

begin().catch((error) => { document.getElementById("main").replaceChildren(h("p", { class: "loading", role: "alert" }, "These pages cannot be read: " + error.message)); });
