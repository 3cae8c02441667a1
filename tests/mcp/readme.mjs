#!/usr/bin/env node
// timeout: 120
// What the README says for each client, taken from it: the server starts so, with the SDK's transport and the variables that it passes on,
// from where that client starts it, and its command finds the project.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { connect } from './clients.mjs';

const text = fs.readFileSync(path.join(process.env.RATTAN_SRC, 'README.md'), 'utf8');
const section = text.slice(text.indexOf('### Configuring a client'), text.indexOf('## For a person'));
const project = fs.mkdtempSync(path.join(process.env.HOME, 'project-'));
fs.writeFileSync(path.join(project, 'file.txt'), 'hello from the project\n');

// Of TOML, what such a file holds: tables, and values that are JSON as well.
function toml(source) {
  const top = {};
  let at = top;
  for (const line of source.split('\n')) {
    const table = line.match(/^\[+([\w.]+)\]+$/), pair = line.match(/^(\w+) = (.*)$/);
    if (table) {
      at = {};
      const keys = table[1].split('.'), last = keys.pop();
      const into = keys.reduce((o, k) => (o[k] ??= {}), top);
      if (line.startsWith('[[')) (into[last] ??= []).push(at);
      else into[last] = at;
    } else if (pair) {
      at[pair[1]] = JSON.parse(pair[2]);
    } else {
      assert.equal(line, '');
    }
  }
  return top;
}

// Each client's own form of it as command and arguments; where a client starts its servers, when not in the project.
function entry(config) {
  if (config.mcpServers) return config.mcpServers.rattan;
  if (config.servers) return config.servers.rattan;
  if (config.context_servers) return config.context_servers.rattan;
  if (config.mcp) return { command: config.mcp.rattan.command[0], args: config.mcp.rattan.command.slice(1) };
  return Array.isArray(config.mcp_servers) ? config.mcp_servers.find(s => s.name === 'rattan') : config.mcp_servers.rattan;
}

const here = s => s.replaceAll('/path/to/rattan', process.env.RATTAN).replaceAll('${workspaceFolder}', project).replaceAll('/home/me/project', project);

async function start(what, { command, args, cwd }) {
  assert.equal(command, '/path/to/rattan', `${what}: a whole path`);
  // With --overlay-cwd a client starts it in the project, or says where; the others from wherever they are.
  const from = args.includes('--overlay-cwd') ? here(cwd ?? project) : '/';
  const s = await connect('v1', args.map(here), undefined, { command: here(command), cwd: from });
  const names = (await s.client.listTools()).tools.map(t => t.name);
  const reader = names.find(n => n.endsWith('read_file'));
  assert.match(await s.call('shell_run', { command: 'cat file.txt; echo changed > file.txt' }), /\nhello from the project\n/, what);
  assert.match(await s.call(reader, { path: 'file.txt' }), /changed/, what);
  await s.close();
  assert.deepEqual(s.complaints, [], what);
  assert.equal(fs.readFileSync(path.join(project, 'file.txt'), 'utf8'), 'hello from the project\n', `${what}: the project is as it was`);
  console.log(`ok - ${what}`);
}

let n = 0, from = 0;
for (const fence of section.matchAll(/^```(\w+)\n([^]*?)^```$/gm)) {
  const [all, language, body] = fence, whose = section.slice(from, fence.index).match(/(?<=\*\*)[A-Z][\w ]+(?=\*\*)|opencode/g);
  await start([...new Set(whose)].join(', '), entry(language === 'json' ? JSON.parse(body) : toml(body)));
  from = fence.index + all.length;
  n++;
}
assert.ok(n >= 7, `${n} examples`);
const added = section.match(/`claude mcp add rattan -- (\S+) (.*?)`/s);
await start('claude mcp add', { command: added[1], args: added[2].split(/\s+/) });
