#!/usr/bin/env node
// timeout: 600
// An agent's whole session through each official client: write a small C project, break it, mend it, build, run, commit,
// delete everything, go back, build again; long commands, cancellation, and an end that leaves nothing.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { connect, modes } from './clients.mjs';

const files = {
  'Makefile': 'CFLAGS = -Wall -O1\napp: main.o greet.o\n\t$(CC) -o $@ $^\nmain.o greet.o: greet.h\nclean:\n\trm -f app *.o\n',
  'greet.h': 'const char *greet(void);\n',
  'greet.c': '#include "greet.h"\n\nconst char *greet(void)\n{\n\treturn "hello from the sandbox"\n}\n',
  'main.c': '#include <stdio.h>\n#include "greet.h"\n\nint main(void)\n{\n\tputs(greet());\n\treturn 7;\n}\n',
};

async function project(s) {
  for (const [name, content] of Object.entries(files))
    assert.match(await s.call('rattan_write_file', { path: `/workspace/app/${name}`, content }), /^created/);
  let t = await s.call('shell_run', { command: 'make', cwd: '/workspace/app' });
  assert.match(t, /^exit 2 in /, 'make must fail');
  assert.match(t, /expected '?.?;/, 'and say why');
  await s.call('rattan_edit', { path: 'app/greet.c', old_string: 'sandbox"\n', new_string: 'sandbox";\n' });
  assert.match(await s.call('rattan_grep', { pattern: 'hello from', path: '/workspace/app' }), /greet\.c/);
  assert.match(await s.call('rattan_read_file', { file_path: '/workspace/app/greet.c' }), /sandbox";/);
  t = await s.call('shell_run', { command: 'make && ./app', cwd: 'app' });
  assert.match(t, /^exit 7 in [\s\S]*\nhello from the sandbox\n/);
  assert.match(t, /\[changed:.*app\/app/);
  t = await s.call('env_diff');
  assert.match(t, /^A \/workspace\/app\/main\.c$/m);
  assert.match(await s.call('env_diff', { path: 'app/greet.h' }), /^\+const char \*greet\(void\);$/m);
}

async function history(s) {
  const id = (await s.call('env_commit', { message: 'it builds' })).match(/^commit id ([0-9a-f]{64})$/m)[1];
  assert.match(await s.call('env_commit', { message: 'again' }), /^nothing to commit/);
  assert.match(await s.call('env_diff'), /: 0 changes/);
  await s.call('shell_run', { command: 'echo note > /home/user/note; rm -rf /workspace/* /home/user/*' });
  assert.match(await s.call('shell_run', { command: 'ls -A /workspace | wc -l' }), /\n0\n/);
  await assert.rejects(s.call('rattan_read_file', { path: '/workspace/app/main.c' }), /error: /);
  assert.match(await s.call('env_diff'), /^D \/workspace\/app\/main\.c$/m);
  const moved = await s.call('env_rollback', { to_commit_id: id });
  assert.match(moved, /^rolled back/);
  assert.match(await s.call('rattan_read_file', { path: '/workspace/app/main.c' }), /puts\(greet\(\)\)/);
  assert.match(await s.call('shell_run', { command: 'make -C app clean app && app/app' }), /^exit 7[\s\S]*hello from the sandbox/);
  // What the deletion left behind was kept: forward, and back again.
  const kept = moved.match(/rev="([0-9a-f]+)"/)[1];
  await s.call('env_rollback', { rev: kept });
  assert.match(await s.call('shell_run', { command: 'ls -A /workspace | wc -l' }), /\n0\n/);
  await s.call('env_rollback', { rev: id.slice(0, 12) });
  assert.match(await s.call('env_snapshot_list'), /\(head\).*it builds/);
  await assert.rejects(s.call('env_rollback', { rev: 'ffffffffffff' }), /env_snapshot_list/);
  return id;
}

async function forks(s, id) {
  const name = `fork-${id.slice(0, 8)}`;
  await s.call('shell_run', { command: 'echo later > /workspace/later' });
  const t = await s.call('env_fork', { name, rev: id.slice(0, 12) });
  assert.match(t, new RegExp(`^forked ${name} from \\S+ at ${id.slice(0, 12)}: give environment="${name}"`));
  assert.match(t, /uncommitted/);
  assert.match(await s.call('shell_run', { command: 'ls; echo there > mine', environment: name }), /\napp\n/);
  assert.match(await s.call('env_snapshot_list', { environment: name }), /\(head\).*it builds/);
  assert.match(await s.call('rattan_read_file', { path: 'mine', environment: name }), /there/);
  await assert.rejects(s.call('rattan_read_file', { path: 'mine' }), /error: /, 'trees are independent');
  await assert.rejects(s.call('env_fork', { name }), /already; choose another name/);
  await assert.rejects(s.call('env_fork', { name: 'a/b' }), /is no name of an environment/);
  await assert.rejects(s.call('env_fork', { name: 'x', rev: 'ffffffffffff' }), /env_snapshot_list/);
  await assert.rejects(s.call('env_fork', {}), /'name' is missing/);
  await s.call('shell_run', { command: 'rm /workspace/later' });
}

async function jobs(s) {
  let t = await s.call('shell_job_start', { command: 'for i in 1 2 3 4; do echo step $i; sleep 0.4; done; echo done > /workspace/artifact' });
  const job = t.match(/j\d+-[0-9a-f]+/)[0];
  let polls = 0;
  do {
    t = await s.call('shell_job_status', { job_id: job });
    await new Promise(r => setTimeout(r, 100));
  } while (/running/.test(t) && ++polls < 200);
  assert.match(t, /exit 0/);
  assert.ok(polls > 2, 'it ran in the background');
  assert.match(await s.call('shell_job_output', { job_id: job }), /step 1\nstep 2\nstep 3\nstep 4\n/);
  assert.match(await s.call('rattan_read_file', { path: '/workspace/artifact' }), /done/, 'a job writes the same tree');
  t = await s.call('shell_job_start', { command: 'sleep 60' });
  await assert.rejects(s.call('env_rollback', { rev: 'head' }), /commands are running/);
  await s.call('shell_job_kill', { job_id: t.match(/j\d+-[0-9a-f]+/)[0] });
}

async function waiting(s) {
  const seen = [];
  const t = await s.call('shell_run', { command: 'for i in 1 2 3; do echo tick $i; sleep 1; done' },
    { onprogress: p => seen.push(p), timeout: 20000, resetTimeoutOnProgress: true });
  assert.match(t, /tick 3/);
  assert.ok(seen.length >= 1 && seen.every((p, i) => !i || p.progress > seen[i - 1].progress), 'progress rises');
  const stop = new AbortController();
  setTimeout(() => stop.abort('enough'), 300);
  await assert.rejects(s.request('shell_run', { command: 'sleep 50' }, { signal: stop.signal }));
  let list;
  for (let i = 0; i < 50; i++) {
    list = await s.call('shell_job_list');
    if (/, 0 running/.test(list)) break;
    await new Promise(r => setTimeout(r, 100));
  }
  assert.match(list, /, 0 running/, 'cancelling ends the command');
  const began = performance.now();
  const slow = s.call('shell_run', { command: 'sleep 1.5' });
  await s.call('env_status');
  if (s.era === 'legacy') await s.client.ping();
  assert.ok(performance.now() - began < 1400, 'a slow call holds up no other');
  await slow;
}

async function session(mode, env) {
  const s = await connect(mode, [], env);
  assert.equal(s.era, mode === 'v2-auto' || mode === 'v2-pinned' ? 'modern' : 'legacy');
  assert.equal(s.version(), s.era === 'modern' ? '2026-07-28' : '2025-11-25');
  const { tools } = await s.client.listTools();
  assert.ok(tools.length >= 20 && JSON.stringify(tools).length < 24 * 1024);
  await project(s);
  const id = await history(s);
  await forks(s, id);
  await jobs(s);
  await waiting(s);
  await s.call('rattan_write_file', { path: '/workspace/uncommitted', content: 'x\n' });
  await s.call('shell_job_start', { command: 'sleep 100; echo late > /workspace/late' });
  const took = await s.close();
  assert.ok(took < 1500, `closing took ${took} ms`);
  assert.deepEqual(s.complaints, []);
  assert.ok(s.counts.checked > 50, `${s.counts.checked} messages were checked`);

  const again = await connect(mode, [], env);
  await assert.rejects(again.call('rattan_read_file', { path: '/workspace/uncommitted' }), /error: /, 'not committed: gone');
  assert.match(await again.call('env_snapshot_list'), new RegExp(`${id.slice(0, 12)} \\(head\\)`), 'commits stay');
  assert.match(await again.call('shell_run', { command: 'app/app' }), /^exit 7/);
  await again.close();
  return took;
}

// Everything writable, if the person who starts the server says so: the system's programs go and come back. Not otherwise.
async function wholeTree(mode, env) {
  const narrow = await connect(mode, ['--env', 'narrow'], env);
  assert.match(await narrow.call('shell_run', { command: 'rm -rf /usr/bin' }), /^exit 1 [\s\S]*(denied|Read-only)/);
  assert.match(await narrow.call('shell_run', { command: 'ls -d /usr/bin/ls' }), /^exit 0/);
  await assert.rejects(narrow.call('rattan_write_file', { path: '/etc/x', content: 'x' }), /error: .*\/workspace/s);
  await narrow.close();
  const s = await connect(mode, ['--env', 'wide', '--writable-root', '/'], env);
  await s.call('shell_run', { command: 'echo mine > /etc/mine; rm -rf /usr/bin' });
  // The shell went as well, which is said; what needs none says that ls is not there.
  await assert.rejects(s.call('shell_run', { command: 'ls' }), /neither bash nor sh/);
  await assert.rejects(s.call('rattan_read_file', { path: '/usr/bin/ls' }), /error: /);
  await s.call('env_rollback', { to_commit_id: 'base' });
  assert.match(await s.call('shell_run', { command: 'ls /usr/bin/ls; test -e /etc/mine || echo gone' }), /^exit 0[\s\S]*\ngone/);
  await s.close();
}

// Names, sizes, modes and times of what must stay as it is; content of what is small.
function host(top) {
  return ['/usr/bin', '/etc', process.env.HOME].map(d => fs.readdirSync(d).sort().map(n => {
    const p = path.join(d, n), t = fs.lstatSync(p, { throwIfNoEntry: false });
    return t && !p.startsWith(top) ? `${p} ${t.ino} ${t.size} ${t.mode} ${t.mtimeMs}` : '';
  }).join('\n')).join('\n');
}

const only = process.argv.slice(2);
for (const mode of only.length ? only : modes) {
  const top = fs.mkdtempSync(path.join(process.env.TMPDIR ?? os.tmpdir(), `session-${mode}-`));
  const env = { ...process.env, XDG_DATA_HOME: path.join(top, 'data'), XDG_RUNTIME_DIR: process.env.XDG_RUNTIME_DIR ?? path.join(top, 'run') };
  fs.mkdirSync(env.XDG_RUNTIME_DIR, { recursive: true, mode: 0o700 });
  const began = performance.now();
  const before = host(top);
  const closing = await session(mode, env);
  await wholeTree(mode, env);
  assert.equal(host(top), before, 'the host is as it was');
  console.log(`${mode}: ok in ${((performance.now() - began) / 1000).toFixed(1)} s, closed in ${closing.toFixed(0)} ms`);
}
