/** The samples of the documentation are correct TypeScript on the package as it is. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { afterAll, expect, test } from "vitest";
import { samplesOf } from "./support/samples.ts";

const PACKAGE = fileURLToPath(new URL("../", import.meta.url));
const folder = mkdtempSync(join(PACKAGE, ".samples-"));

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** The part of React Native that the samples use; the real packages are no dependency of this one. */
const STUBS = `
declare module "react-native" {
  export const AppState: { currentState: string; addEventListener(name: string, listener: () => void): { remove(): void } };
  export const Platform: { OS: string };
  export const Button: any; export const FlatList: any; export const Text: any; export const TextInput: any; export const View: any;
}
declare module "@react-native-async-storage/async-storage" {
  const storage: { getItem(key: string): Promise<string | null>; setItem(key: string, value: string): Promise<void>; removeItem(key: string): Promise<void> };
  export default storage;
}
declare module "@react-native-community/netinfo" {
  const info: { addEventListener(listener: (state: { isConnected: boolean | null; type: string }) => void): () => void };
  export default info;
}
declare module "react" {
  export function useEffect(effect: () => (() => void) | void, inputs: readonly unknown[]): void;
  export function useState<T>(initial: T | (() => T)): [T, (value: T | ((known: T) => T)) => void];
}
declare module "react/jsx-runtime" { export const jsx: any; export const jsxs: any; export const Fragment: any; }
declare namespace JSX { interface IntrinsicElements { [name: string]: any } interface ElementAttributesProperty { props: any } type Element = any; }
`;

test.each([
  ["sdk/typescript/README.md", 2],
  ["docs/first-app-react-native.md", 3],
])(
  "%s",
  (page, atLeast) => {
    const samples = samplesOf(page).filter(
      ({ language }) => language === "ts" || language === "tsx",
    );
    expect(samples.length).toBeGreaterThanOrEqual(atLeast);
    const root = join(folder, page.replaceAll("/", "-"));
    const stubs = join(root, "stubs.d.ts");
    const files = samples.map((sample, index) => ({
      path: join(root, sample.file ?? `sample-${index}.${sample.language}`),
      code: sample.code,
    }));
    for (const { path, code } of [...files, { path: stubs, code: STUBS }]) {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, code);
    }
    const program = ts.createProgram({
      rootNames: [...files.map(({ path }) => path), stubs],
      options: {
        strict: true,
        noEmit: true,
        skipLibCheck: true,
        target: ts.ScriptTarget.ES2022,
        lib: ["lib.es2022.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"],
        module: ts.ModuleKind.ESNext,
        moduleResolution: ts.ModuleResolutionKind.Bundler,
        allowImportingTsExtensions: true,
        noImplicitAny: false,
        jsx: ts.JsxEmit.ReactJSX,
        types: [],
        paths: { "@hermes-mobile/client": [join(PACKAGE, "src", "index.ts")] },
      },
    });
    const problems = ts
      .getPreEmitDiagnostics(program)
      .map(
        (each) =>
          `${each.file?.fileName ?? ""}: ${ts.flattenDiagnosticMessageText(each.messageText, "\n")}`,
      );

    expect(problems).toEqual([]);
  },
  60_000,
);
