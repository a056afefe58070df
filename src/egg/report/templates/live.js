// Follows the files behind the page: asks for it again, and puts what is new in the place of what is there.
// What a reader has unfolded, filtered and sorted stays as it is.
const PAUSE = 1500;
const sign = document.getElementById("live");
const keyOf = (part) => `${part.closest("[id]")?.id} ${part.querySelector("summary").textContent}`;
const labelOf = (head) => head.closest("[role=region]")?.getAttribute("aria-label");
const swap = (text) => {
  const made = new DOMParser().parseFromString(text, "text/html");
  const before = document.querySelector("main");
  const open = new Set([...before.querySelectorAll("details[open]")].map(keyOf));
  const filled = [...before.querySelectorAll(".filters input, .filters select")].map((field) => field.value);
  const sorted = [...before.querySelectorAll("th[aria-sort]")].map((head) => {
    return [labelOf(head), head.textContent, head.getAttribute("aria-sort")];
  });
  const after = document.adoptNode(made.querySelector("main"));
  before.replaceWith(after);
  document.title = made.title;
  prepare();
  for (const part of after.querySelectorAll("details")) part.open ||= open.has(keyOf(part));
  const heads = [...after.querySelectorAll("th")];
  for (const [label, name, order] of sorted) {
    const head = heads.find((one) => labelOf(one) === label && one.textContent === name);
    for (let turn = 0; head && turn < 2 && head.getAttribute("aria-sort") !== order; turn += 1) head.querySelector("button")?.click();
  }
  const fields = [...after.querySelectorAll(".filters input, .filters select")];
  if (fields.length === filled.length) fields.forEach((field, index) => { field.value = filled[index]; });
  for (const form of after.querySelectorAll(".filters")) form.dispatchEvent(new Event("input"));
};
const follow = async () => {
  try {
    const answer = await fetch(location.href, { cache: "no-store", headers: { "If-None-Match": sign.dataset.tag } });
    if (answer.status === 200) {
      sign.dataset.tag = answer.headers.get("ETag");
      swap(await answer.text());
    }
    sign.textContent = answer.ok || answer.status === 304 ? "live" : `no news: ${answer.status}`;
  } catch {
    sign.textContent = "egg view has ended";
  }
  setTimeout(follow, PAUSE);
};
setTimeout(follow, PAUSE);
