// Comforts only: every page works without this file. Keys, pages that read themselves again, and the travel slider.
"use strict";

(() => {
  const isTyping = (element) => element && (element.matches("input, select, textarea") || element.isContentEditable);

  // Keys.
  let waitsForPage = 0;
  let row = -1;

  // Not those of numbers below a plot, which are hidden and lead nowhere.
  const rowsOf = () => [...document.querySelectorAll("main tbody tr")].filter((one) => !one.closest(".plot"));
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
  let seconds = Number(document.body.dataset.refresh || 0);
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
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const read = page.querySelector("main");
        seconds = Number(page.body.dataset.refresh || seconds);
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

  // A live tail: asks for the records since the last answer, and puts them on top.
  const MOST_ROWS = 500, MOST_NOTES = 20;
  const tail = document.querySelector("[data-tail][data-next]");
  const askTail = async () => {
    const state = tail.querySelector("[data-tail-state]");
    const say = (text) => { if (state.textContent !== text) state.textContent = text; };
    if (!document.hidden) {
      let answer;
      try {
        const headers = { Accept: "text/html", "fencepost-refresh": "tail" };
        answer = await fetch(`${tail.dataset.next}&new=yes`, { headers, redirect: "error" });
      } catch { say("The console does not answer, or your session has ended; it asks again"); }
      if (answer) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const read = page.querySelector("[data-tail]");
        if (!read) {
          say(answer.status === 422 || answer.status === 404 ? page.querySelector("main")?.textContent.trim() || "It has ended" : "It could not be read; it asks again");
          if (answer.status === 422 || answer.status === 404) return;
        } else {
          const rows = [...read.querySelectorAll("tbody tr")];
          const body = tail.querySelector("tbody");
          if (rows.length && !body) tail.querySelector(".empty")?.replaceWith(read.querySelector("table"));
          else if (rows.length) {
            const top = window.scrollY > 200 ? document.documentElement.scrollHeight : 0;
            body.prepend(...rows);
            while (body.rows.length > MOST_ROWS) body.lastElementChild.remove();
            if (top) window.scrollBy(0, document.documentElement.scrollHeight - top);
          }
          const notes = tail.querySelector("[data-tail-notes]");
          notes.prepend(...read.querySelectorAll("[data-tail-notes] li"));
          while (notes.children.length > MOST_NOTES) notes.lastElementChild.remove();
          if (!read.dataset.next) return say("The tail has ended: load this page again to go on");
          tail.dataset.next = read.dataset.next;
          say("The newest first; asks every 2 s");
        }
      }
    }
    setTimeout(askTail, 2000);
  };
  if (tail) setTimeout(askTail, 2000);

  // The slider travels when it is let go.
  document.querySelector("[data-travel] input[type=range]")?.addEventListener("change", (event) => {
    event.target.form.elements.time.value = "";
    event.target.form.requestSubmit();
  });
})();
