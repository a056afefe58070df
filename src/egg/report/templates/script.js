"use strict";
// Sorting, filtering and folding, where scripts run; the page says the same without.
const prepare = () => {
  for (const table of document.querySelectorAll("table.sorted")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.disabled = false;
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const first = head.dataset.first || "ascending";
        const turned = first === "ascending" ? "descending" : "ascending";
        const order = now === first ? turned : first;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const number = head.dataset.kind === "number";
        const rows = [...body.rows].map((row) => [row.cells[column].dataset.v ?? row.cells[column].textContent.trim(), row]);
        rows.sort(([a], [b]) => {
          if (a === "" || b === "") return (a === "") - (b === "");
          return sign * (number ? a - b : a.localeCompare(b, "en", { numeric: true }));
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  }
  for (const form of document.querySelectorAll(".filters[data-for]")) {
    const table = document.getElementById(form.dataset.for);
    const count = form.querySelector("[role=status]");
    const text = form.querySelector("input");
    const choices = [...form.querySelectorAll("select")];
    form.hidden = false;
    const apply = () => {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const fits = choices.every((choice) => !choice.value || row.dataset[choice.name] === choice.value);
        const found = fits && words.every((word) => row.textContent.toLowerCase().includes(word));
        row.hidden = !found;
        shown += found;
      }
      count.textContent = `${shown} of ${table.tBodies[0].rows.length} shown`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }
  for (const button of document.querySelectorAll("button[data-fold]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      for (const part of document.querySelectorAll(`${button.dataset.fold} details`)) part.open = open;
      button.setAttribute("aria-expanded", String(open));
      button.textContent = open ? "fold everything" : "unfold everything";
    });
  }
};
prepare();
