/** The one script a page includes. Including it twice, or in two versions, does no harm. */
import { HermesPanel } from "./element.ts";
import { PanelText } from "./text.ts";

if (customElements.get("hermes-panel") === undefined) {
  customElements.define("hermes-panel-text", PanelText);
  customElements.define("hermes-panel", HermesPanel);
}
