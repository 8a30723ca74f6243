/** What a page may do for its panel: tell what it shows. The panel itself is the script tag and the element. */
interface PanelElement extends HTMLElement {
  pageContext: () => Record<string, unknown>;
  selectedBlockId: () => string | null;
}

const note = document.getElementById("note");
const panel = document.querySelector<PanelElement>("hermes-panel");
let block: string | null = null;

document.addEventListener("selectionchange", () => {
  const anchor = document.getSelection()?.anchorNode;
  if (anchor == null || note?.contains(anchor) !== true) return;
  const element = anchor instanceof Element ? anchor : anchor.parentElement;
  block = element?.closest<HTMLElement>("[data-block]")?.dataset["block"] ?? null;
});

if (panel !== null) {
  panel.pageContext = () => ({
    title: document.title,
    outline: [...(note?.querySelectorAll("h1, h2") ?? [])].map((heading) => ({
      level: Number(heading.tagName[1]),
      text: heading.textContent?.trim() ?? "",
    })),
    text: note?.innerText ?? "",
  });
  panel.selectedBlockId = () => block;
}
