#!/usr/bin/env node
// timeout: 120
// Two sessions in one project: the end of one takes nothing from the other, nor from an environment that it only
// looked into; the end of the last drops what was not committed.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { connect } from './clients.mjs';

// The working directory is not below HOME: its user has listed it.
fs.mkdirSync(`${process.env.XDG_CONFIG_HOME}/rattan`, { recursive: true });
fs.writeFileSync(`${process.env.XDG_CONFIG_HOME}/rattan/config.json`, JSON.stringify({ bind_roots: [process.cwd()] }));
const start = () => connect('v1', ['--overlay-cwd'], { ...process.env });
const rattan = (...args) => execFileSync(process.env.RATTAN, args, { encoding: 'utf8' });

fs.mkdirSync('shared');
process.chdir('shared');
rattan('run', '-e', 'aside', '-c', 'echo mine > /workspace/mine');
const a = await start(), b = await start();
await a.call('rattan_write_file', { path: 'a.txt', content: 'a\n' });
assert.match(await b.call('rattan_read_file', { path: 'a.txt' }), /a/);
assert.match(await b.call('env_status', { environment: 'aside' }), /^environment aside .* uncommitted: 1 added/);
await b.close();
assert.match(await a.call('rattan_read_file', { path: 'a.txt' }), /a/);
assert.match(await a.call('shell_run', { command: 'cat a.txt' }), /^exit 0/);
assert.equal(rattan('run', '-e', 'aside', '--', 'cat', 'mine'), 'mine\n');
await a.close();
assert.equal(rattan('run', '--overlay-cwd', '--', 'ls'), '');
const log = rattan('log', '--auto');
assert.equal(log.trim().split('\n').length, 1, `one automatic state: ${log}`);
