/** The few pictures of the app, drawn with lines of the text's colour. */
import { svg, html, type TemplateResult } from "lit";

function icon(path: TemplateResult): TemplateResult {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    ${path}
  </svg>`;
}

export const icons = {
  send: icon(svg`<path d="M4.5 12 20 4.5 15.5 20l-3.6-6.4L4.5 12Zm7.4 1.6L20 4.5" />`),
  attach: icon(
    svg`<path d="m20 11.5-8.3 8.1a5 5 0 0 1-7.1-7L13 4.4a3.4 3.4 0 0 1 4.8 4.8l-8.4 8.2a1.7 1.7 0 0 1-2.4-2.4l7.6-7.5" />`,
  ),
  microphone: icon(
    svg`<rect x="9" y="3" width="6" height="11" rx="3" /><path d="M5.5 11.5a6.5 6.5 0 0 0 13 0M12 18v3" />`,
  ),
  close: icon(svg`<path d="M6 6l12 12M18 6 6 18" />`),
  check: icon(svg`<path d="m5 12.5 4.5 4.5L19 7.5" />`),
  checks: icon(svg`<path d="m2.5 12.5 4.5 4.5L16 8M12 16l1 1 8.5-9" />`),
  clock: icon(svg`<circle cx="12" cy="12" r="8" /><path d="M12 7.5V12l3 2" />`),
  warning: icon(svg`<path d="M12 4 2.8 19.5h18.4L12 4Zm0 6v4.5m0 2.4v.1" />`),
  menu: icon(svg`<path d="M4 7h16M4 12h16M4 17h16" />`),
  down: icon(svg`<path d="M12 5v14m-6-6 6 6 6-6" />`),
  download: icon(svg`<path d="M12 4v11m-5-5 5 5 5-5M4.5 20h15" />`),
  file: icon(svg`<path d="M6 3h8l5 5v13H6V3Zm8 0v5h5" />`),
  copy: icon(
    svg`<rect x="8.5" y="8.5" width="11" height="12" rx="2" /><path d="M15.5 8.5v-3a2 2 0 0 0-2-2h-7a2 2 0 0 0-2 2v8a2 2 0 0 0 2 2h2" />`,
  ),
  plus: icon(svg`<path d="M12 5v14M5 12h14" />`),
  edit: icon(svg`<path d="m4.5 19.5 1-4.5L16 4.5l3.5 3.5L9 18.5l-4.5 1Z" />`),
  scan: icon(
    svg`<path d="M4 8V4h4M16 4h4v4M20 16v4h-4M8 20H4v-4M8 8h3v3H8zM13 8h3v3h-3zM8 13h3v3H8zM13 13h1.5v1.5M16 16h.01" />`,
  ),
  terminal: icon(svg`<path d="m5 7 5 5-5 5M12.5 17.5H19" />`),
  question: icon(
    svg`<circle cx="12" cy="12" r="9" /><path d="M9.5 9.5a2.6 2.6 0 1 1 3.6 2.4c-.7.3-1.1.8-1.1 1.6v.5m0 2.7v.1" />`,
  ),
  trash: icon(svg`<path d="M5 7h14M10 7V4.5h4V7m-7.5 0 1 13h9l1-13" />`),
  play: icon(svg`<path d="M8 5.5v13l10.5-6.5L8 5.5Z" />`),
};
