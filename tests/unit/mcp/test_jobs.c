#include "mcp/jobs.h"

#include <pthread.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/record.h"
#include "mcp/shelltext.h"
#include "mcp/until.h"
#include "tests/lib/tap.h"

static struct client *client;

static struct job *start(struct jobs *js, const char *command, bool separate, int *ret)
{
	struct diag diag = {0};
	struct run_spec spec;
	struct job *j = NULL;

	run_spec_init(&spec);
	spec.shell = command;
	spec.cwd = "/workspace";
	spec.stderr_mode = separate ? RUN_STDERR_SEPARATE : RUN_STDERR_MERGED;
	*ret = job_start(js, client, NULL, &spec, command, &diag, &j);
	return j;
}

static struct job *must(struct jobs *js, const char *command, bool separate)
{
	int r;
	struct job *j = start(js, command, separate, &r);

	if (r)
		tap_fatal("job_start: %d", r);
	return j;
}

static void end(struct job *j)
{
	while (!job_run(j, 1000))
		continue;
}

static void test_foreground(struct jobs *js)
{
	struct job *j = must(js, "echo out; echo err >&2; exit 3", true);
	struct job_info in;
	char data[16] = "", id[JOB_ID_MAX];

	end(j);
	job_get_info(j, &in);
	ok(in.ended && in.result.code == 3 && in.size[0] == 4 && in.size[1] == 4, "a command ends");
	ok(job_read(j, 1, 0, data, sizeof(data)) == 4 && !strcmp(data, "err\n"), "stderr apart");
	ok(job_read(j, 0, 2, data, 1) == 1 && data[0] == 't', "a byte of the middle");
	eq_int(job_read(j, 0, 100, data, 1), 0, "behind the end");
	memcpy(id, in.id, sizeof(id));
	ok(!jobs_find(js, id), "a foreground command is not listed");
	job_keep(j);
	job_put(j);
	j = jobs_find(js, id);
	ok(j != NULL, "unless it is kept");
	eq_int(job_kill(j, 0, true), -ESRCH, "killing what has ended");
	job_put(j);
}

static void test_background(struct jobs *js)
{
	struct job *j = must(js, "echo a; sleep 30 & sleep 30", false), *list[4];
	long long t0 = io_now_ms();
	struct job_info in;

	eq_int(job_run(j, 50), 0, "it runs");
	eq_int(job_background(j, true), 0, "it goes on by itself");
	ok(!job_wait(j, 50), "it runs on");
	ok(jobs_list(js, list, 4) == 2 && list[0] == j, "it is the first in the list");
	job_put(list[0]);
	job_put(list[1]);
	eq_int(job_kill(j, 0, true), 0, "kill");
	ok(job_wait(j, 5000), "its end is noticed");
	job_get_info(j, &in);
	ok(in.cancelled && io_now_ms() - t0 < 5000, "as killed");
	job_put(j);
}

static void test_ids(struct jobs *js)
{
	struct record *rec;
	struct jobs *other;
	struct job *a = must(js, "true", false), *b;
	struct job_info ia, ib;

	end(a);
	if (record_new(NULL, &rec) || jobs_new(rec, NULL, NULL, &other))
		tap_fatal("jobs_new");
	b = must(other, "true", false);
	end(b);
	job_get_info(a, &ia);
	job_get_info(b, &ib);
	ok(strcmp(strchr(ia.id, '-'), strchr(ib.id, '-')) != 0, "another process, other ids: %s %s",
	   ia.id, ib.id);
	job_put(a);
	job_put(b);
	eq_int(jobs_wait_all(other, io_now_ms()), true, "nothing runs");
	jobs_free(other);
	record_free(rec);
}

/* A record that is full has the ends of all that it has begun to tell, and that of the server. */
static void test_full_record(void)
{
	char dir[] = "/tmp/rattan-test-XXXXXX", cmd[64], text[200], id[JOB_ID_MAX];
	struct record *old, *next;
	struct record_job j, lost[4];
	int n = 0, all = 0;
	uint32_t nonce;

	if (!mkdtemp(dir) || record_new(dir, &old) || record_new(dir, &next))
		tap_fatal("records");
	nonce = record_nonce(old);
	(void)snprintf(text, sizeof(text), "%0150d", 0);
	for (; n < 30000; n++) {
		(void)snprintf(id, sizeof(id), "j%d-%08x", n, nonce);
		/* Of the first ones the end comes last. */
		if (record_job(old, id, "default", text) && n >= 32)
			record_job_end(old, id, "exit 7");
	}
	for (n = 1; n < 32; n++) {
		(void)snprintf(id, sizeof(id), "j%d-%08x", n, nonce);
		record_job_end(old, id, "exit 8");
	}
	record_free(old);
	for (n = 1; n < 32; n++) {
		(void)snprintf(id, sizeof(id), "j%d-%08x", n, nonce);
		all += record_find(next, id, &j) && j.ended && !strcmp(j.how, "exit 8");
	}
	eq_int(all, 31, "how they ended is known, and that their server ended in order");
	eq_int(record_lost(next, "default", lost, 4), 1, "one was lost");
	ok(!strncmp(lost[0].id, "j0-", 3), "the first (%s)", lost[0].id);
	record_free(next);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	(void)!system(cmd); /* NOLINT: a name that we made */
}

/* Old ones make room, and memory does not grow. */
static void test_kept(struct jobs *js)
{
	struct job *list[JOBS_MAX_KEPT + 40];
	char first[JOB_ID_MAX] = "";
	struct job_info in;
	size_t n;

	for (int i = 0; i < JOBS_MAX_KEPT + 20; i++) {
		struct job *j = must(js, "true", false);

		end(j);
		job_get_info(j, &in);
		if (!i)
			memcpy(first, in.id, sizeof(first));
		job_keep(j);
		job_put(j);
	}
	n = jobs_list(js, list, ARRAY_SIZE(list));
	ok(n <= JOBS_MAX_KEPT + 1, "%zu jobs are kept", n);
	for (size_t i = 0; i < n; i++)
		job_put(list[i]);
	ok(!jobs_find(js, first), "the oldest is gone");
}

static void test_output(struct jobs *js)
{
	struct job *j = must(js, "seq 1 5000", false);
	struct buf b = {0};
	uint64_t left;
	char *gap;

	end(j);
	eq_int(sh_lines(j, 0), 5000, "lines are counted");
	if (sh_output(&b, j, 0, 1000, "j9-x", &left))
		tap_fatal("sh_output");
	gap = strstr((char *)b.data, "[... ");
	ok(gap && gap[-1] == '\n' && strstr(gap, "job_id=\"j9-x\" offset="),
	   "a gap, at a line's end");
	ok(!strncmp((char *)b.data, "1\n2\n", 4) && !strcmp((char *)b.data + b.len - 5, "5000\n"),
	   "head and tail");
	eq_int(left, job_size(j, 0) - (b.len - (strchr(gap, '\n') + 1 - gap)), "bytes are counted");
	buf_clear(&b);
	if (sh_output(&b, j, 0, 1 << 20, "j9-x", &left))
		tap_fatal("sh_output");
	ok(b.len == job_size(j, 0) && !left, "all of it where it fits");
	buf_release(&b);
	job_put(j);
}

static int look(struct job *j, const char *pattern, char *line, size_t n)
{
	struct until *u;
	int r = until_new(pattern, NULL, &u);

	if (r)
		return r;
	r = until_look(u, j);
	if (r == 1)
		(void)snprintf(line, n, "%s", until_line(u));
	until_free(u);
	return r;
}

static void test_until(struct jobs *js)
{
	struct job *j = must(js, "seq 1 30000; printf 'a\\377b\\nlast'", false);
	char line[64] = "";

	end(j);
	ok(look(j, "^29999$", line, sizeof(line)) == 1 && !strcmp(line, "29999"), "far behind");
	ok(look(j, "las", line, sizeof(line)) == 1 && !strcmp(line, "last"), "an unfinished line");
	eq_int(look(j, "^b", line, sizeof(line)), 0, "a match is in one line");
	ok(look(j, "^a.?", line, sizeof(line)) == 1, "beside bytes that are not UTF-8");
	eq_int(look(j, "(", line, sizeof(line)), -EINVAL, "not a pattern");
	job_put(j);
	j = must(js, "head -c 40 /dev/zero | tr '\\0' a; echo b", false);
	end(j);
	eq_int(look(j, "^(a+)+$", line, sizeof(line)), -EFBIG, "a pattern that never ends, ends");
	job_put(j);
}

static void test_end(struct jobs *js)
{
	struct job *j[JOBS_MAX_RUNNING], *more;
	long long t0;
	int r;

	for (int i = 0; i < JOBS_MAX_RUNNING; i++) {
		j[i] = must(js, "sleep 60", false);
		if (job_background(j[i], true))
			tap_fatal("job_background");
	}
	more = start(js, "true", false, &r);
	ok(!more && r == -EAGAIN, "one more than may run");
	t0 = io_now_ms();
	jobs_kill_all(js);
	ok(jobs_wait_all(js, io_now_ms() + 5000), "all end (%lld ms)", io_now_ms() - t0);
	more = start(js, "true", false, &r);
	ok(!more && r == -ESHUTDOWN, "and none starts any more");
	for (int i = 0; i < JOBS_MAX_RUNNING; i++)
		job_put(j[i]);
}

int main(void)
{
	const struct ctl_env_opts o = {.env = "default"};
	struct jobs *js;

	if (client_new(&o, &client) || jobs_new(NULL, NULL, NULL, &js))
		tap_fatal("start");
	test_foreground(js);
	test_background(js);
	test_ids(js);
	test_full_record();
	test_kept(js);
	test_output(js);
	test_until(js);
	test_end(js);
	jobs_free(js);
	client_free(client);
	return tap_done();
}
