/** A line that can be cut: a TCP relay between a client and a real server. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

export class Relay {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Bytes that went from the client to the server. */
  sent = 0;
  /** Bytes that went from the server to the client. */
  received = 0;
  #watch: (() => void) | undefined;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async to(port: number): Promise<Relay> {
    const server = createServer();
    const relay = new Relay(server);
    server.on("connection", (near) => {
      const far = connect(port, "127.0.0.1");
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        relay.#sockets.add(from);
        from.on("error", () => undefined);
        from.on("close", () => {
          relay.#sockets.delete(from);
          to.destroy();
        });
        from.on("data", (piece: Buffer) => {
          if (from === near) relay.sent += piece.length;
          else relay.received += piece.length;
          to.write(piece);
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
