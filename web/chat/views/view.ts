/** What all views share: plain DOM (one stylesheet, no shadow), and the language. */
import { LitElement, type PropertyDeclarations } from "lit";
import { LANGUAGES, type Language, type Words } from "../words/index.ts";

export class View extends LitElement {
  static override properties: PropertyDeclarations = { language: { attribute: false } };
  declare language: Language;

  constructor() {
    super();
    this.language = "en";
  }

  get words(): Words {
    return LANGUAGES[this.language];
  }

  protected override createRenderRoot(): HTMLElement {
    return this;
  }

  /** The element with this selector inside the view, which is there after the first update. */
  protected find<Kind extends Element>(selector: string): Kind | undefined {
    return this.querySelector<Kind>(selector) ?? undefined;
  }
}
