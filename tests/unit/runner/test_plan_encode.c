/* What the runner encodes is what stage3 decodes. */
#include "runner/plan_encode.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stage3/plan.h"
#include "tests/lib/tap.h"

static char **room;

static int encode(const struct run_spec *s, struct buf *b, struct plan *ret)
{
	const struct plan_options o = {.tty = false};
	struct diag d = {{0}};
	size_t need;
	int r;

	buf_clear(b);
	r = plan_encode(s, &o, &d, b);
	if (r < 0)
		return r;
	r = plan_pointers(b->data, b->len, &need);
	if (r < 0)
		return r;
	free(room);
	room = calloc(need, sizeof(*room));
	return room ? plan_decode(b->data, b->len, room, need, ret) : -ENOMEM;
}

static const char *var(const struct plan *p, const char *name)
{
	size_t i, n = strlen(name);

	for (i = 0; i < p->envc; i++) {
		if (!strncmp(p->envp[i], name, n) && p->envp[i][n] == '=')
			return p->envp[i] + n + 1;
	}
	return NULL;
}

static const struct stage3_rule *rule_of(const struct plan *p, const char *path)
{
	size_t i;

	for (i = 0; i < p->nrules; i++) {
		if (!strcmp(p->rule_paths[i], path))
			return &p->rules[i];
	}
	return NULL;
}

static int memfd_tests(const struct buf *b)
{
	int fd = plan_memfd("test", b);

	ok(fd >= 0, "a memfd");
	ok(write(fd, "x", 1) < 0, "that cannot be written");
	ok(ftruncate(fd, 0) < 0, "or cut");
	eq_int(lseek(fd, 0, SEEK_CUR), 0, "and is at its beginning");
	return close(fd);
}

int main(void)
{
	const char *const argv[] = {"a", "", "c d", NULL}, *const env[] = {"X=1", "HOME=/h", NULL};
	struct buf b = {0};
	struct run_spec s;
	struct plan p;
	char *longer;

	run_spec_init(&s);
	run_limits_default(&s.limits);
	s.root = "/";
	s.argv = argv;
	s.env = env;
	s.writable = "/workspace\n/home/user\n";
	eq_int(encode(&s, &b, &p), 0, "arguments");
	eq_int(p.argc, 3, "their number");
	eq_str(p.argv[1], "", "an empty one");
	eq_str(p.cwd, "/workspace", "the default directory");
	eq_str(var(&p, "HOME"), "/h", "the caller's variable replaces the default");
	eq_str(var(&p, "X"), "1", "and adds");
	eq_str(var(&p, "PWD"), "/workspace", "PWD is the directory");
	eq_int(p.nfilters, 2, "two filters");
	ok(rule_of(&p, "/home/user") && rule_of(&p, "/home/user")->rights & STAGE3_REFER,
	   "a writable place, with rename");
	ok(rule_of(&p, "/") && !(rule_of(&p, "/")->rights & STAGE3_WRITE_FILE) &&
		   rule_of(&p, "/")->rights & STAGE3_EXECUTE,
	   "the rest is for reading and executing");
	(void)memfd_tests(&b);

	s.no_exec_workspace = true;
	eq_int(encode(&s, &b, &p), 0, "no execution in writable places");
	ok(p.required == STAGE3_EXECUTE, "needs Landlock");
	ok(!(rule_of(&p, "/workspace")->rights & STAGE3_EXECUTE) &&
		   !(rule_of(&p, "/")->rights & STAGE3_EXECUTE),
	   "and gives no right to execute over them");
	s.writable = "/";
	eq_int(encode(&s, &b, &p), -EINVAL, "everything writable and nothing executable");
	s.no_exec_workspace = false;
	eq_int(encode(&s, &b, &p), 0, "everything writable");
	s.writable = "relative";
	eq_int(encode(&s, &b, &p), -EINVAL, "a place that is not absolute");
	s.writable = "";
	longer = malloc(200001);
	if (!longer)
		tap_fatal("memory");
	memset(longer, 'x', 200000);
	longer[200000] = '\0';
	s.argv = NULL;
	s.shell = longer;
	eq_int(encode(&s, &b, &p), -E2BIG, "a word longer than the kernel takes");
	longer[100000] = '\0';
	eq_int(encode(&s, &b, &p), 0, "and one that it takes");
	ok(p.flags & STAGE3_PLAN_SHELL, "as shell text");
	free(longer);
	free(room);
	buf_release(&b);
	return tap_done();
}
