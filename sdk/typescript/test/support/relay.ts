/** A line that can be cut: a TCP relay between a client and a real server. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

export class Relay {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #target: number;
  /** Bytes that each connection brings down before it ends. */
  allowance = Number.POSITIVE_INFINITY;
  /** Bytes that went from the client to the server. */
  sent = 0;
  #watch: (() => void) | undefined;

  private constructor(server: Server, target: number) {
    this.#server = server;
    this.#target = target;
  }

  static async to(port: number): Promise<Relay> {
    const server = createServer();
    const relay = new Relay(server, port);
    server.on("connection", (near) => {
      const far = connect(relay.#target, "127.0.0.1");
      let left = relay.allowance;
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        relay.#sockets.add(from);
        from.on("error", () => undefined);
        from.on("close", () => {
          relay.#sockets.delete(from);
          // What was let through is delivered, though the other side is gone.
          if (left > 0) to.destroy();
        });
        from.on("data", (piece: Buffer) => {
          if (from === near) {
            relay.sent += piece.length;
            to.write(piece);
          } else if (piece.length < left) {
            left -= piece.length;
            to.write(piece);
          } else {
            to.end(piece.subarray(0, left));
            left = 0;
            from.destroy();
          }
          relay.#watch?.();
        });
      }
    });
    await new Promise<void>((resolve) => {
      server.listen(0, "127.0.0.1", resolve);
    });
    return relay;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Connections that come from now on go to this port. */
  leadTo(port: number): void {
    this.#target = port;
  }

  /** Breaks every connection now, as a lost network does. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  /** Breaks every connection once so many more bytes went up. */
  cutAfter(bytes: number): Promise<void> {
    const limit = this.sent + bytes;
    return new Promise((resolve) => {
      this.#watch = () => {
        if (this.sent < limit) return;
        this.#watch = undefined;
        this.cut();
        resolve();
      };
    });
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => {
      this.#server.close(resolve);
    });
  }
}
