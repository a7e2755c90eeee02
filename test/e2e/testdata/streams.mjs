// A Connect-ES client of the bridge: node streams.mjs PROTOCOL HTTP_VERSION BASE_URL DESCRIPTORS {RPC REQUEST_JSON}...
//
// PROTOCOL is connect, grpc or grpcweb. It prints each event as a line of JSON. RPC is "call", which reads the stream of
// a call and sends a receipt for each step, "ask", which answers each question with a name, or "watch". They run one
// after the other.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [protocol, httpVersion, baseUrl, descriptors, ...rpcs] = process.argv.slice(2);
const require = createRequire(pathToFileURL(process.env.NODE_PACKAGES + "/package.json"));
const { createFileRegistry, fromBinary, fromJson, toJson } = require("@bufbuild/protobuf");
const { FileDescriptorSetSchema } = require("@bufbuild/protobuf/wkt");
const { Code, ConnectError, createClient } = require("@connectrpc/connect");
const { createConnectTransport, createGrpcTransport, createGrpcWebTransport } = require("@connectrpc/connect-node");

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(descriptors)));
const create = { connect: createConnectTransport, grpc: createGrpcTransport, grpcweb: createGrpcWebTransport }[protocol];
const transport = create({ baseUrl, httpVersion });
const tools = createClient(registry.getService("mcpbridge.v1.ToolsService"), transport);
const message = (name, json) => fromJson(registry.getMessage("mcpbridge.v1." + name), json, { registry });
const print = (name, m) => console.log(JSON.stringify(toJson(registry.getMessage("mcpbridge.v1." + name), m, { registry })));

async function call(json) {
  for await (const m of tools.callToolStream(message("CallToolStreamRequest", json))) {
    print("CallToolStreamResponse", m);
    if (m.event.case === "progress") {
      const { target, arguments: given } = json.call;
      const args = { ...given, steps: m.event.value.progress };
      await tools.callTool(message("CallToolRequest", { target, name: "receipt", arguments: args }));
    }
  }
}

async function ask(json) {
  const queue = [];
  let wake = () => {};
  const send = (m) => {
    queue.push(m && message("CallToolInteractiveRequest", m));
    wake();
  };
  async function* sent() {
    for (;;) {
      while (queue.length === 0) await new Promise((resolve) => (wake = resolve));
      const m = queue.shift();
      if (m === undefined) return;
      yield m;
    }
  }
  send({ start: json });
  for await (const m of tools.callToolInteractive(sent())) {
    print("CallToolInteractiveResponse", m);
    if (m.event.case === "inputRequest") {
      send({ inputResponse: { id: m.event.value.id, result: { action: "accept", content: { name: "Ada" } } } });
    } else if (m.event.case === "outcome") {
      send(undefined);
    }
  }
}

async function watch(json) {
  const left = new AbortController();
  try {
    for await (const m of tools.watchTools(message("WatchToolsRequest", json), { signal: left.signal })) {
      print("WatchToolsResponse", m);
      if (m.event.case === "ready") {
        await tools.callTool(message("CallToolRequest", { ...json, name: "grow", arguments: { text: "grown-for-" + protocol + httpVersion } }));
      } else if (m.event.case === "changed") {
        left.abort();
        return;
      }
    }
  } catch (err) {
    if (ConnectError.from(err).code !== Code.Canceled) throw err;
  }
}

try {
  for (let i = 0; i < rpcs.length; i += 2) await { call, ask, watch }[rpcs[i]](JSON.parse(rpcs[i + 1]));
} catch (err) {
  const e = ConnectError.from(err);
  console.log(JSON.stringify({ error: Code[e.code], message: e.rawMessage }));
}
process.exit(0);
