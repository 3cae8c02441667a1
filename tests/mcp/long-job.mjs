#!/usr/bin/env node
// timeout: 480
// Work of more than a minute, which is how long clients wait for a call, as a background job, polled to its end as an agent does, while
// other calls are answered. RATTAN_LONG: five minutes.
import assert from 'node:assert/strict';
import { connect } from './clients.mjs';

const steps = process.env.RATTAN_LONG ? 300 : 70;
const s = await connect('v2-auto', [], { ...process.env });
const began = performance.now();
let t = await s.call('shell_run', { command: `for i in $(seq ${steps}); do echo step $i; sleep 1; done; echo finished > result`, wait: 2 });
const id = t.match(/\bjob[ =:]+"?([A-Za-z0-9_-]+)/)[1];
let polls = 0, other = 0;
for (;;) {
  t = await s.call('shell_job_wait', { job_id: id, wait_seconds: 15 });
  polls++;
  if (!/running/.test(t.split('\n')[0])) break;
  const one = performance.now();
  await s.call('rattan_list_dir', { path: '/workspace' });
  other = Math.max(other, performance.now() - one);
}
const took = (performance.now() - began) / 1000;
assert.match(t, /exit 0/);
assert.ok(took >= steps && polls >= 4, `${took} s, ${polls} polls`);
assert.match(await s.call('shell_job_output', { job_id: id, tail_bytes: 100 }), new RegExp(`step ${steps}`));
assert.match(await s.call('rattan_read_file', { path: '/workspace/result' }), /finished/);
await s.close();
console.log(`${took.toFixed(0)} s in ${polls} polls; another call took at most ${other.toFixed(0)} ms meanwhile`);
