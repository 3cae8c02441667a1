// The official SDK clients, old line and new, behind one small face for the tests.
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as StdioV1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Client as ClientV2 } from '@modelcontextprotocol/client';
import { StdioClientTransport as StdioV2 } from '@modelcontextprotocol/client/stdio';
import * as core from '@modelcontextprotocol/core';

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
