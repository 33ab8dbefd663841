// Comforts only: every page works without this file. Keys, pages that read themselves again, and the travel slider.
"use strict";

(() => {
  const isTyping = (element) => element && (element.matches("input, select, textarea") || element.isContentEditable);

  // Keys.
  let waitsForPage = 0;
  let row = -1;

  const rowsOf = () => [...document.querySelectorAll("main tbody tr")];
  const mark = (rows) => rows.forEach((one, number) => one.classList.toggle("current", number === row));

  const moveBy = (step) => {
    const rows = rowsOf();
    if (!rows.length) return;
    row = Math.min(rows.length - 1, Math.max(0, row + step));
    mark(rows);
    rows[row].scrollIntoView({ block: "nearest" });
    rows[row].querySelector("a")?.focus();
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (waitsForPage && Date.now() - waitsForPage < 1500) {
      waitsForPage = 0;
      const link = document.querySelector(`.menu a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.href = link.href; }
      return;
    }
    const actions = {
      "/": () => document.getElementById("search").focus(),
      g: () => { waitsForPage = Date.now(); },
      j: () => moveBy(1),
      k: () => moveBy(-1),
      r: () => location.reload(),
      "?": () => document.getElementById("keys").showModal(),
    };
    const action = actions[event.key];
    if (action) { event.preventDefault(); action(); }
  });

  // Pages that read themselves again, unless somebody is at work in them or they are not in front.
  const seconds = Number(document.body.dataset.refresh || 0);
  // Links that had the focus get it back; a button would lose it before it is pressed.
  const isInUse = () =>
    document.hidden || isTyping(document.activeElement) || document.activeElement?.matches("main button, main summary") ||
    document.querySelector("main details[open], dialog[open]") || !document.getSelection().isCollapsed;

  const readAgain = async () => {
    if (!isInUse()) {
      try {
        // The header says that no person did it, so that a session ends although its page is in front.
        const headers = { Accept: "text/html", "Fencepost-Refresh": "yes" };
        const answer = await fetch(location.href, { headers, redirect: "manual" });
        if (answer.type === "opaqueredirect") { location.reload(); return; }
        const read = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        const main = document.querySelector("main");
        if (read && !isInUse()) {
          const address = document.activeElement?.closest("main") && document.activeElement.getAttribute("href");
          main.replaceChildren(...read.childNodes);
          if (address) main.querySelector(`a[href="${CSS.escape(address)}"]`)?.focus({ preventScroll: true });
          if (row >= 0) {
            const rows = rowsOf();
            const focused = rows.findIndex((one) => one.contains(document.activeElement));
            if (focused >= 0) row = focused;
            mark(rows);
          }
        }
      } catch { /* the console does not answer just now; the next try may succeed */ }
    }
    setTimeout(readAgain, seconds * 1000);
  };
  if (seconds) setTimeout(readAgain, seconds * 1000);

  // The slider travels when it is let go.
  document.querySelector("[data-travel] input[type=range]")?.addEventListener("change", (event) => {
    event.target.form.elements.time.value = "";
    event.target.form.requestSubmit();
  });
})();
