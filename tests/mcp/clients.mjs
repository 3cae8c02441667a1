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

// A connected client. Whatever the transport or stderr complains about is kept in `complaints`.
export async function connect(mode, args, env) {
  const v1 = mode === 'v1';
  const transport = new (v1 ? StdioV1 : StdioV2)({ command: process.env.RATTAN, args, env, stderr: 'pipe' });
  const options = { capabilities: {} };
  if (negotiation[mode]) options.versionNegotiation = negotiation[mode];
  const client = new (v1 ? ClientV1 : ClientV2)({ name: `rattan-test-${mode}`, version: '1' }, options);
  const complaints = [];
  client.onerror = e => complaints.push(String(e));
  transport.stderr?.on('data', d => complaints.push(`stderr: ${d}`));
  await client.connect(transport);
  const request = (name, a, o) =>
    v1 ? client.callTool({ name, arguments: a }, undefined, o) : client.callTool({ name, arguments: a }, o);
  return {
    client,
    complaints,
    era: v1 ? 'legacy' : client.getProtocolEra(),
    request,
    // The text of the answer; an error answer throws.
    async call(name, a = {}, o = undefined) {
      const r = await request(name, a, o);
      const checked = core.CallToolResultSchema.safeParse(r);
      if (!checked.success) throw new Error(`${name}: not a tool result: ${checked.error}`);
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
