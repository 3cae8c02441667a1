/*
 * tests/unit/runner/rig.h - one command in a sandbox over the host's own tree, for the tests: the only
 * writable place is a temporary directory, which is also the working directory.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "runner/runner.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"

static char rig_dir[] = "/tmp/rattan-test-XXXXXX";
static const char *rig_stage3;

/* argv[1] of a test is the path of rattan-stage3. */
static inline void rig_setup(int argc, char **argv)
{
	need_namespaces();
	if (argc < 2)
		tap_fatal("usage: %s RATTAN-STAGE3", argv[0]);
	/* the working directory changes */
	for (int i = 1; i < argc; i++)
		argv[i] = realpath(argv[i], NULL);
	rig_stage3 = argv[1];
	if (!rig_stage3)
		tap_fatal("%s has no such program", argv[0]);
	if (!mkdtemp(rig_dir) || chdir(rig_dir) < 0)
		tap_fatal("cannot make %s", rig_dir);
}

static inline void rig_end(void)
{
	char cmd[64];

	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", rig_dir);
	(void)!system(cmd); /* NOLINT: a name that we made */
}

static inline void rig_spec(struct run_spec *s)
{
	run_spec_init(s);
	s->root = "/";
	s->writable = rig_dir;
	s->cwd = rig_dir;
	s->stage3 = rig_stage3;
	s->timeout_ms = 60000;
}

struct rig_out {
	struct run_result res;
	char out[65536], err[4096];
	size_t out_len, err_len;
};

static inline size_t rig_text(struct run *r, int stream, char *ret, size_t size)
{
	struct buf head = {0}, tail = {0};
	uint64_t skipped;
	size_t n = 0;

	if (run_output(r, stream, &head, &tail, &skipped) == 0) {
		n = head.len < size ? head.len : size - 1;
		if (n)
			memcpy(ret, head.data, n);
	}
	ret[n] = '\0';
	buf_release(&head);
	buf_release(&tail);
	return n;
}

static inline void rig_finish(struct run *r, struct rig_out *ret)
{
	if (run_wait(r, UINT64_MAX, &ret->res) != 1)
		tap_fatal("a run that ended is not reported");
	ret->out_len = rig_text(r, 0, ret->out, sizeof(ret->out));
	ret->err_len = rig_text(r, 1, ret->err, sizeof(ret->err));
	run_free(r);
}

static inline struct run *rig_start(const struct run_spec *s)
{
	struct diag d = {{0}};
	struct run *r = NULL;
	int e = run_start(s, &d, &r);

	if (e < 0)
		tap_fatal("run_start: %s (%s)", err_text(e), d.text);
	return r;
}

static inline void rig_run(const struct run_spec *s, struct rig_out *ret)
{
	memset(ret, 0, sizeof(*ret));
	rig_finish(rig_start(s), ret);
}

static inline void rig_shell(const char *text, struct rig_out *ret)
{
	struct run_spec s;

	rig_spec(&s);
	s.shell = text;
	rig_run(&s, ret);
}
