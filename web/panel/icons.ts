/** The few pictures of the panel, drawn in the text's colour. */
import { html, svg, type TemplateResult } from "lit";

function icon(path: TemplateResult): TemplateResult {
  return html`<svg class="icon-svg" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    ${path}
  </svg>`;
}

export const icons = {
  face: html`<svg viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <circle class="skin" cx="12" cy="12" r="11" />
    <ellipse class="ink" cx="8.5" cy="11" rx="1.4" ry="2" />
    <ellipse class="ink" cx="15.5" cy="11" rx="1.4" ry="2" />
    <path class="smile" d="M9 16q3 2.4 6 0" />
  </svg>`,
  plus: icon(svg`<path d="M12 5v14M5 12h14" />`),
  chevron: icon(svg`<path d="m7 10 5 5 5-5" />`),
  send: icon(svg`<path d="M5 12h13m-5.500-5.500L18 12l-5.500 5.500" />`),
  stop: icon(svg`<rect x="7" y="7" width="10" height="10" rx="1.500" />`),
  check: icon(svg`<path d="m5 12.500 4.500 4.500L19 7.500" />`),
  cross: icon(svg`<path d="M7 7l10 10M17 7 7 17" />`),
  warning: icon(svg`<path d="M12 4 2.800 19.500h18.400L12 4Zm0 6v4.500m0 2.400v.1" />`),
  terminal: icon(svg`<path d="m5 7 5 5-5 5M12.500 17.500H19" />`),
};
