// The official SDK clients, old line and new, behind one small face for the tests.
// A test that imports this is skipped where they are not installed.
let sdk;
try {
  sdk = await Promise.all([
    import('@modelcontextprotocol/sdk/client/index.js'), import('@modelcontextprotocol/sdk/client/stdio.js'),
    import('@modelcontextprotocol/client'), import('@modelcontextprotocol/client/stdio'), import('@modelcontextprotocol/core')]);
} catch (e) {
  if (e.code !== 'ERR_MODULE_NOT_FOUND') throw e;
  console.log('the SDK clients are not installed (npm ci in tests/mcp)');
  process.exit(77);
}
const [{ Client: ClientV1 }, { StdioClientTransport: StdioV1 }, { Client: ClientV2 }, { StdioClientTransport: StdioV2 }, core] = sdk;

export const modes = ['v1', 'v2-legacy', 'v2-auto', 'v2-pinned'];
const negotiation = { 'v2-auto': { mode: 'auto' }, 'v2-pinned': { mode: { pin: '2026-07-28' } } };

// By method, what the answer has to be; and each notification.
const answers = {
  'initialize': core.InitializeResultSchema, 'server/discover': core.DiscoverResultSchema, 'ping': core.EmptyResultSchema,
  'tools/list': core.ListToolsResultSchema, 'tools/call': core.CallToolResultSchema,
};
const notices = {
  'notifications/progress': core.ProgressNotificationSchema,
  'notifications/subscriptions/acknowledged': core.SubscriptionsAcknowledgedNotificationSchema,
};

function check(message, asked) {
  const schemas = [core.JSONRPCMessageSchema];
  if ('method' in message) schemas.push('id' in message ? undefined : notices[message.method]);
  else if ('result' in message) schemas.push(answers[asked.get(message.id)]);
  for (const schema of schemas) {
    const r = schema?.safeParse(schema === schemas[0] || 'method' in message ? message : message.result);
    if (!r?.success) return `not a message of the schema: ${JSON.stringify(message).slice(0, 300)}: ${r?.error ?? 'unexpected'}`;
  }
}

// Every message from the server is checked before the client sees it.
function watch(transport, complaints, counts) {
  const asked = new Map(), send = transport.send.bind(transport);
  const tell = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = v => { transport.agreed = v; tell?.(v); };
  let handler;
  transport.send = (m, o) => {
    for (const one of Array.isArray(m) ? m : [m]) if ('id' in one && one.method) asked.set(one.id, one.method);
    return send(m, o);
  };
  Object.defineProperty(transport, 'onmessage', {
    get: () => handler,
    set: f => {
      handler = f && ((m, extra) => {
        const wrong = check(m, asked);
        if (wrong) complaints.push(wrong);
        counts.checked++;
        f(m, extra);
      });
    },
  });
}

// A connected client. Whatever the transport, the schemas or stderr complain about is kept in `complaints`.
export async function connect(mode, args, env, more = {}) {
  const v1 = mode === 'v1';
  const transport = new (v1 ? StdioV1 : StdioV2)({ command: process.env.RATTAN, args, env, stderr: 'pipe', ...more });
  const options = { capabilities: {} };
  if (negotiation[mode]) options.versionNegotiation = negotiation[mode];
  const client = new (v1 ? ClientV1 : ClientV2)({ name: `rattan-test-${mode}`, version: '1' }, options);
  const complaints = [], counts = { checked: 0 };
  watch(transport, complaints, counts);
  client.onerror = e => complaints.push(String(e));
  transport.stderr?.on('data', d => complaints.push(`stderr: ${d}`));
  await client.connect(transport);
  const request = (name, a, o) =>
    v1 ? client.callTool({ name, arguments: a }, undefined, o) : client.callTool({ name, arguments: a }, o);
  return {
    client,
    complaints,
    counts,
    era: v1 ? 'legacy' : client.getProtocolEra(),
    version: () => v1 ? transport.agreed : client.getNegotiatedProtocolVersion(),
    request,
    // The text of the answer; an error answer throws.
    async call(name, a = {}, o = undefined) {
      const r = await request(name, a, o);
      const text = r.content.map(c => c.text).join('');
      if (r.isError) throw new Error(`${name}: ${text}`);
      return text;
    },
    async close() {
      const t = performance.now();
      await client.close();
      return performance.now() - t;
    },
  };
}
