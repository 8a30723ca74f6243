/** A line to a server that can be cut and mended: TCP, so that no program on either side knows. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

export class Line {
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  #cut = false;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** @param target `host:port` of the server */
  static async to(target: string): Promise<Line> {
    const [host = "", port = ""] = target.split(":");
    const server = createServer();
    const line = new Line(server);
    server.on("connection", (near) => {
      line.#keep(near);
      if (line.#cut) {
        near.destroy();
        return;
      }
      const far = connect(Number(port), host);
      line.#keep(far);
      near.pipe(far).pipe(near);
      near.once("close", () => far.destroy());
      far.once("close", () => near.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return line;
  }

  /** `host:port` of this end. */
  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Ends every connection and refuses new ones. */
  cut(): void {
    this.#cut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  mend(): void {
    this.#cut = false;
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("error", () => undefined);
    socket.once("close", () => this.#sockets.delete(socket));
  }
}
