/**
 * A proxy without a network: `fetch` records each request and gives what `answers` holds next.
 * An event stream is a `Stream` the test feeds, breaks or ends.
 */
export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers: Headers;
  readonly body: unknown;
  readonly signal: AbortSignal | undefined;
}

export class Stream {
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  readonly body: ReadableStream<Uint8Array>;
  cancelled = false;

  constructor() {
    this.body = new ReadableStream({
      start: (controller) => {
        this.#controller = controller;
      },
      cancel: () => {
        this.cancelled = true;
      },
    });
  }

  write(text: string): void {
    this.#controller.enqueue(new TextEncoder().encode(text));
  }

  event(id: string, event: object): void {
    this.write(`id: ${id}\ndata: ${JSON.stringify(event)}\n\n`);
  }

  end(): void {
    this.#controller.close();
  }

  break(reason: unknown = new TypeError("network error")): void {
    try {
      this.#controller.error(reason);
    } catch {
      // Ended already.
    }
  }
}

export type Answer = Response | Stream | Error | "hang";

export class FakeProxy {
  readonly asked: Asked[] = [];
  readonly answers: Answer[] = [];

  readonly fetch: typeof fetch = (input, init) => {
    const headers = new Headers(init?.headers);
    const signal = init?.signal ?? undefined;
    this.asked.push({
      method: init?.method ?? "GET",
      path: input as string,
      headers,
      body: typeof init?.body === "string" ? (JSON.parse(init.body) as unknown) : undefined,
      signal,
    });
    const answer = this.answers.shift();
    if (answer === undefined) throw new Error(`nobody expected ${input as string}`);
    return new Promise<Response>((resolve, reject) => {
      const abort = (): void => {
        reject(signal?.reason as Error);
        if (answer instanceof Stream) answer.break(signal?.reason);
      };
      if (signal?.aborted === true) abort();
      signal?.addEventListener("abort", abort);
      if (answer instanceof Error) reject(answer);
      else if (answer instanceof Stream) {
        resolve(
          new Response(answer.body, {
            headers: { "content-type": "text/event-stream; charset=utf-8" },
          }),
        );
      } else if (answer !== "hang") resolve(answer);
    });
  };
}

export function json(value: unknown, status = 200, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(value), {
    status,
    headers: { "content-type": "application/json", ...headers },
  });
}

export function refusal(
  code: string,
  status: number,
  headers: Record<string, string> = {},
): Response {
  const body = {
    ok: false,
    code,
    message: `sentence of ${code}`,
    traceId: "trace_9",
    requestId: "req_9",
  };
  return json(body, status, headers);
}
