#include "runner/plan_encode.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/bpf_default.h"
#include "runner/bpf_gen.h"
#include "runner/promises.h"
#include "runner/way_out.h"
#include "stage3/stage3_abi.h"

#define ARG_STRLEN_MAX 131072u /* the kernel's MAX_ARG_STRLEN */

/* ---- places ---- */

enum {
	READS = STAGE3_READ_FILE | STAGE3_READ_DIR,
	WRITES = STAGE3_WRITE_FILE | STAGE3_TRUNCATE,
	CHANGES = STAGE3_RIGHTS_FS & ~(STAGE3_EXECUTE | STAGE3_IOCTL_DEV | READS),
};

/* What every command may touch beside the writable places: its private /dev and /proc. */
static const struct {
	const char *path;
	uint32_t rights;
} places[] = {
	{"/dev/null", READS | WRITES},
	{"/dev/zero", READS | WRITES},
	{"/dev/full", READS | WRITES},
	{"/dev/random", READS | WRITES},
	{"/dev/urandom", READS | WRITES},
	{"/dev/tty", READS | WRITES | STAGE3_IOCTL_DEV},
	{"/dev/console", READS | WRITES | STAGE3_IOCTL_DEV},
	{"/dev/ptmx", READS | WRITES | STAGE3_IOCTL_DEV},
	{"/dev/pts", READS | WRITES | STAGE3_IOCTL_DEV},
	{"/dev/shm", READS | CHANGES | STAGE3_EXECUTE},
	/* oom_score_adj, comm, ...: whose files may be written is the kernel's check */
	{"/proc", READS | WRITES},
};

struct encoder {
	struct buf rules, paths;
	uint32_t nrules;
};

static int rule_put(struct encoder *e, const char *path, size_t n, uint32_t rights, uint32_t flags)
{
	struct stage3_rule rule = {.rights = rights, .flags = flags};
	int r;

	if (e->nrules >= STAGE3_MAX_RULES || n >= STAGE3_PATH_MAX)
		return -E2BIG;
	r = buf_put(&e->rules, &rule, sizeof(rule));
	if (r == 0)
		r = buf_put(&e->paths, path, n);
	if (r == 0)
		r = buf_put(&e->paths, "", 1);
	e->nrules++;
	return r;
}

static int writable_put(struct encoder *e, const struct run_spec *s, struct diag *diag)
{
	const char *at = s->writable ? s->writable : "";
	uint32_t exec = s->no_exec_workspace ? 0 : STAGE3_EXECUTE;
	uint32_t hole = s->no_exec_workspace ? STAGE3_RULE_HOLE : 0;
	size_t n;
	int r;

	for (; *at; at += n + (at[n] == '\n')) {
		n = strcspn(at, "\n");
		if (n == 0)
			continue;
		if (at[0] != '/')
			return diag_set(diag, -EINVAL, "writable place \"%.*s\" is not absolute",
					(int)n, at);
		if (n == 1 && s->no_exec_workspace)
			return diag_set(diag, -EINVAL,
					"with all of / writable and nothing executable in writable "
					"places no command could run");
		r = rule_put(e, at, n, READS | CHANGES | exec, STAGE3_RULE_MAY_MISS | hole);
		if (r < 0)
			return r;
	}
	return 0;
}

static int rules_put(struct encoder *e, const struct run_spec *s, struct diag *diag)
{
	size_t i;
	int r;

	r = rule_put(e, "/", 1, READS | (s->no_exec_workspace ? 0 : STAGE3_EXECUTE), 0);
	if (r == 0 && s->no_exec_workspace)
		r = rule_put(e, "/", 1, STAGE3_EXECUTE, STAGE3_RULE_AROUND);
	for (i = 0; r == 0 && i < ARRAY_SIZE(places); i++) {
		uint32_t rights = places[i].rights;

		if (s->no_exec_workspace)
			rights &= ~(uint32_t)STAGE3_EXECUTE;
		r = rule_put(e, places[i].path, strlen(places[i].path), rights,
			     STAGE3_RULE_MAY_MISS |
				     (s->no_exec_workspace && rights & STAGE3_MAKE_REG
					      ? STAGE3_RULE_HOLE
					      : 0));
	}
	return r < 0 ? r : writable_put(e, s, diag);
}

/* ---- limits ---- */

static int limit_put(struct buf *b, uint32_t *count, uint32_t resource, uint64_t value)
{
	struct stage3_limit l = {.resource = resource, .value = value};

	if (value == UINT64_MAX)
		return 0;
	(*count)++;
	return buf_put(b, &l, sizeof(l));
}

/* The kernel counts it for the user as well: half of what we may have stays for the host's programs. */
static uint64_t half_of_ours(int resource)
{
	struct rlimit rl;

	if (getrlimit((__rlimit_resource_t)resource, &rl) < 0 || rl.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return rl.rlim_cur / 2;
}

/* The kernel counts the descriptors that are under way in Unix sockets for the user, and lets nobody pass more who may not open
 * as many: a command that keeps as many under way as it can must not be in the way of ours. */
static uint64_t fewer_than_ours(int resource)
{
	struct rlimit rl;

	if (getrlimit((__rlimit_resource_t)resource, &rl) < 0 || rl.rlim_max == RLIM_INFINITY)
		return UINT64_MAX;
	return rl.rlim_max - rl.rlim_max / 4;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int limits_put(struct buf *b, const struct run_limits *l, uint32_t *count)
{
	const struct {
		uint32_t resource;
		uint64_t value;
	} rows[] = {
		/* One byte is less than any core, and unlike 0 it also keeps the kernel from starting the
		 * host's core handler, which is a program of root's that reads what a command makes of
		 * itself, and fills the host's disk. */
		{RLIMIT_CORE, 1},
		{RLIMIT_CPU, l->cpu_s},
		/* Counted in the command's user namespace (Linux 5.14); docs/stage3-abi.md. */
		{RLIMIT_NPROC, least(l->processes, half_of_ours(RLIMIT_NPROC))},
		{RLIMIT_NOFILE, least(l->open_files, fewer_than_ours(RLIMIT_NOFILE))},
		{RLIMIT_FSIZE, l->file_size},
		/* Not the address space: node, Go and sanitizers reserve far more than they use. */
		{RLIMIT_DATA, l->memory},
		{RLIMIT_MEMLOCK, 64u << 20},
		{RLIMIT_SIGPENDING, half_of_ours(RLIMIT_SIGPENDING)},
		/* Before all others on the machine is no place for a command, whatever its user may do. */
		{RLIMIT_RTPRIO, 0},
		{RLIMIT_NICE, 0},
	};
	size_t i;
	int r = 0;

	for (i = 0; r == 0 && i < ARRAY_SIZE(rows); i++)
		r = limit_put(b, count, rows[i].resource, rows[i].value);
	return r;
}

/* ---- words ---- */

static int string_put(struct buf *b, const char *s)
{
	size_t n = strlen(s) + 1;

	if (n > ARG_STRLEN_MAX)
		return -E2BIG;
	return buf_put(b, s, n);
}

/* Nothing of the server's own environment; @user's variables replace these by name. */
static const char *const env_default[] = {
	"HOME=/home/user",
	"USER=user",
	"LOGNAME=user",
	"SHELL=/bin/bash",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"LANG=C.UTF-8",
	"TERM=dumb",
	"TMPDIR=/tmp",
};

static const char *const env_root[] = {
	"HOME=/root",
	"USER=root",
	"LOGNAME=root",
	"SHELL=/bin/bash",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"LANG=C.UTF-8",
	"TERM=dumb",
	"TMPDIR=/tmp",
	/* Nobody is there who could answer. */
	"DEBIAN_FRONTEND=noninteractive",
};

static bool names_var(const char *const *env, const char *var, size_t n)
{
	for (; env && *env; env++) {
		if (!strncmp(*env, var, n) && (*env)[n] == '=')
			return true;
	}
	return false;
}

static int way_out_put(struct buf *b, const struct net_rules *rules, uint32_t *count)
{
	cleanup_buf struct buf vars = {0};
	uint32_t n;
	int r = way_out_vars(rules, &vars, &n);

	*count += n;
	if (r == 0 && *count > STAGE3_MAX_ENV)
		r = -E2BIG;
	return r < 0 ? r : buf_put(b, vars.data, vars.len);
}

/* Not where the command's own variables would keep bash from reading it first, or have it say what it reads. */
static bool has_note(const struct run_spec *s)
{
	return s->note && s->shell && !names_var(s->env, "BASH_ENV", 8) &&
	       !names_var(s->env, "POSIXLY_CORRECT", 15) && !names_var(s->env, "SHELLOPTS", 9);
}

static int env_put(struct buf *b, const struct run_spec *s, const char *cwd, uint32_t *count)
{
	const char *const *e, *const *def = s->provision ? env_root : env_default;
	size_t i, n = s->provision ? ARRAY_SIZE(env_root) : ARRAY_SIZE(env_default);
	int r = 0;

	*count = 0;
	for (i = 0; r == 0 && i < n; i++) {
		if (names_var(s->env, def[i], strcspn(def[i], "=")))
			continue;
		(*count)++;
		r = string_put(b, def[i]);
	}
	if (r == 0 && !names_var(s->env, "PWD", 3)) {
		(*count)++;
		r = buf_printf(b, "PWD=%s", cwd);
		if (r == 0)
			r = buf_put(b, "", 1);
	}
	for (e = s->env; r == 0 && e && *e; e++) {
		/* The last of one name wins, as in a shell. */
		if (names_var(e + 1, *e, strcspn(*e, "=")))
			continue;
		/* The way out's own stand behind, whatever the caller's say. */
		if (s->net_rules && way_out_names(*e, strcspn(*e, "=")))
			continue;
		if (++*count > STAGE3_MAX_ENV)
			return -E2BIG;
		r = string_put(b, *e);
	}
	if (r == 0 && has_note(s)) {
		(*count)++;
		r = string_put(b, STAGE3_NOTE_ENV);
	}
	if (r == 0 && s->net_rules)
		r = way_out_put(b, s->net_rules, count);
	return r;
}

static int argv_put(struct buf *b, const struct run_spec *s, uint32_t *count)
{
	const char *const *a;
	int r = 0;

	*count = 1;
	if (s->shell)
		return string_put(b, s->shell);
	for (*count = 0, a = s->argv; r == 0 && *a; a++) {
		if (++*count > STAGE3_MAX_ARGS)
			return -E2BIG;
		r = string_put(b, *a);
	}
	return r;
}

static int strings_put(struct buf *b, const struct run_spec *s, struct stage3_plan_header *h,
		       const struct encoder *e)
{
	const char *cwd = s->cwd ? s->cwd : s->provision ? "/" : "/workspace";
	int r;

	r = string_put(b, cwd);
	if (r == 0)
		r = argv_put(b, s, &h->argc);
	if (r == 0)
		r = env_put(b, s, cwd, &h->envc);
	if (r == 0)
		r = buf_put(b, e->paths.data, e->paths.len);
	return r;
}

/* ---- filters ---- */

static int filters_put(struct buf *b, uint32_t mask, struct diag *diag,
		       struct stage3_plan_header *h)
{
	struct bpf_filters f = {0};
	int r;

	h->nfilters = 2;
	if (mask == PROMISES_DEFAULT) {
		h->filter_len[0] = (uint32_t)bpf_default_arguments_count;
		h->filter_len[1] = (uint32_t)bpf_default_calls_count;
		r = buf_put(b, bpf_default_arguments, bpf_default_arguments_count * 8);
		return r < 0 ? r : buf_put(b, bpf_default_calls, bpf_default_calls_count * 8);
	}
	r = bpf_gen(mask, &f);
	if (r < 0)
		return diag_set(diag, r, "the system call filter could not be compiled: %s",
				err_text(r));
	h->filter_len[0] = (uint32_t)(f.arguments.len / 8);
	h->filter_len[1] = (uint32_t)(f.calls.len / 8);
	r = buf_put(b, f.arguments.data, f.arguments.len);
	if (r == 0)
		r = buf_put(b, f.calls.data, f.calls.len);
	bpf_filters_release(&f);
	return r;
}

static uint32_t plan_flags(const struct run_spec *s, const struct plan_options *o)
{
	uint32_t f = 0;

	if (s->shell)
		f |= STAGE3_PLAN_SHELL;
	if (o->tty)
		f |= STAGE3_PLAN_TTY | (o->back ? STAGE3_PLAN_TTY_BACK : 0);
	if (s->net_rules)
		f |= STAGE3_PLAN_LISTEN;
	if (s->linger)
		f |= STAGE3_PLAN_LINGER;
	if (has_note(s))
		f |= STAGE3_PLAN_NOTE;
	if (s->provision)
		f |= STAGE3_PLAN_ROOT;
	return f;
}

/* All of it; TCP is a right only to those who may not use it at all. */
static uint32_t landlock_handled(uint32_t promises)
{
	return promises & (PROMISE_INET | PROMISE_DNS) ? STAGE3_RIGHTS_ALL & ~STAGE3_RIGHTS_NET
						       : STAGE3_RIGHTS_ALL;
}

/* What is known when all is there. */
static void header_finish(struct buf *ret, struct stage3_plan_header *h, size_t strings_at)
{
	h->strings_len = (uint32_t)(ret->len - strings_at);
	h->size = (uint32_t)ret->len;
	memcpy(ret->data, h, sizeof(*h));
}

static int too_long(struct diag *diag)
{
	return diag_set(diag, -E2BIG,
			"the command, its arguments or its environment are too long for the "
			"kernel (128 KiB for one word)");
}

int plan_encode_role(const struct run_spec *s, struct diag *diag, struct buf *ret)
{
	struct stage3_plan_header h = {
		.magic = STAGE3_MAGIC, .version = STAGE3_VERSION, .flags = STAGE3_PLAN_PID1};
	struct encoder none = {0};
	int r = buf_put(ret, &h, sizeof(h));

	if (r == 0)
		r = strings_put(ret, s, &h, &none);
	if (r == 0 && ret->len > STAGE3_PLAN_MAX)
		r = -E2BIG;
	if (r == 0)
		header_finish(ret, &h, sizeof(h));
	return r == -E2BIG ? too_long(diag) : r;
}

static int encode(const struct run_spec *s, const struct plan_options *o, struct diag *diag,
		  struct encoder *e, struct buf *ret)
{
	struct stage3_plan_header h = {
		.magic = STAGE3_MAGIC,
		.version = STAGE3_VERSION,
		.flags = plan_flags(s, o),
		.oom_score_adj = 500,
	};
	uint32_t promises;
	size_t at;
	int r;

	r = promises_parse(s->promises, diag, &promises);
	if (r < 0)
		return r;
	/* The way out is TCP. A socket of the host's in the tree would be another one; asking about interfaces is for those who have some.
	 * But nothing of the host's is bound while a tree is provisioned, and package scripts talk to agents and servers that they start,
	 * and shall find with a network what they find without. */
	if (s->net_rules && !s->provision)
		promises &= ~(uint32_t)(PROMISE_UNIX | PROMISE_NETLINK);
	if (s->provision)
		promises |= PROMISE_ROOT;
	h.handled = landlock_handled(promises);
	if (s->require_landlock)
		h.required = h.handled;
	else if (s->no_exec_workspace) /* what only Landlock can do must not be dropped silently */
		h.required = STAGE3_EXECUTE;
	r = buf_put(ret, &h, sizeof(h));
	if (r == 0)
		r = limits_put(ret, &s->limits, &h.nlimits);
	if (r == 0)
		r = rules_put(e, s, diag);
	if (r == 0)
		r = buf_put(ret, e->rules.data, e->rules.len);
	if (r == 0)
		r = filters_put(ret, promises, diag, &h);
	at = ret->len;
	if (r == 0)
		r = strings_put(ret, s, &h, e);
	if (r == 0 && ret->len > STAGE3_PLAN_MAX)
		r = -E2BIG;
	if (r < 0)
		return r;
	h.nrules = e->nrules;
	header_finish(ret, &h, at);
	return 0;
}

int plan_encode(const struct run_spec *s, const struct plan_options *o, struct diag *diag,
		struct buf *ret)
{
	struct encoder e = {0};
	int r;

	r = encode(s, o, diag, &e, ret);
	buf_release(&e.rules);
	buf_release(&e.paths);
	return r == -E2BIG ? too_long(diag) : r;
}

int plan_memfd(const char *name, const struct buf *b)
{
	cleanup_fd int fd = -1;
	int r;

	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return ret_nerrno();
	r = io_write_full(fd, b->data, b->len);
	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return ret_nerrno();
	/* Readers share the offset. */
	if (lseek(fd, 0, SEEK_SET) < 0)
		return ret_nerrno();
	return steal_fd(&fd);
}
