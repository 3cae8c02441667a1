/*
 * tests/unit/mcp/fake_client.c - an environment that is the host's own tree, for tests of the server
 * alone: commands are real processes without a sandbox, state is a few numbers. What the server does
 * with sandboxes is tested in tests/mcp with the real thing.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "client/client.h"
#include "tests/lib/tap.h"

struct client {
	char env[65];
	atomic_uint commits, resets;
};
struct ctl {
	struct client *c;
};
struct client_run {
	struct run *run;
};
struct run {
	pid_t pid;
	int in_fd, out_fd[2], spill_fd[2];
	pthread_t pump[2];
	struct {
		int from, to;
	} job[2];
	long long started_ms, deadline_ms;
	atomic_bool killed, timed_out;
	unsigned npumps;
};

int client_new(const struct ctl_env_opts *o, struct client **ret)
{
	struct client *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	(void)snprintf(c->env, sizeof(c->env), "%s", o->env);
	*ret = c;
	return 0;
}

void client_free(struct client *c)
{
	free(c);
}

const char *client_env(const struct client *c)
{
	return c->env;
}

int client_keep_spare(struct client *c)
{
	(void)c;
	return 0;
}

int client_ctl_get(struct client *c, struct diag *diag, struct ctl **ret)
{
	if (strcmp(c->env, "default") != 0 && strcmp(c->env, "other") != 0)
		return diag_set(diag, -ENOENT, "no environment %s", c->env);
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	(*ret)->c = c;
	return 0;
}

const char *ctl_opened_note(const struct ctl *c)
{
	(void)c;
	return "";
}

void client_ctl_put(struct client *c, struct ctl *ctl, bool broken)
{
	(void)c;
	(void)broken;
	free(ctl);
}

int client_scratch(struct client *c, const struct client_terms *terms, struct diag *diag,
		   int *ret_fd)
{
	(void)c;
	(void)terms;
	(void)diag;
	*ret_fd = -1;
	return 0;
}

int client_remove_bind(struct client *c, const char *mount, struct diag *diag)
{
	(void)c;
	return diag_set(diag, -ENOENT, "nothing is bound at %s", mount);
}

int client_add_bind(struct client *c, int host_fd, const char *host, const char *mount, bool rw,
		    struct diag *diag)
{
	(void)c;
	(void)host_fd;
	(void)host;
	(void)mount;
	(void)rw;
	(void)diag;
	return 0;
}

int client_attach(struct client *c, const struct client_terms *terms, const char *what,
		  struct diag *diag, struct client_tree *ret)
{
	(void)c;
	(void)terms;
	(void)what;
	(void)ret;
	return diag_set(diag, -EOPNOTSUPP, "no tree here");
}

void client_detach(struct client *c, struct client_tree *t)
{
	(void)c;
	(void)t;
}

int ctl_runtime_dir(char **ret)
{
	return ctl_data_dir(ret);
}

int ctl_data_dir(char **ret)
{
	const char *dir = getenv("TMPDIR");

	if (!dir) /* meson.build gives one */
		return -ENOENT;
	*ret = strdup(dir);
	return *ret ? 0 : -ENOMEM;
}

static void *pump(void *arg)
{
	int *fds = arg;
	char block[65536];
	ssize_t n;

	while ((n = read(fds[0], block, sizeof(block))) > 0)
		if (io_write_full(fds[1], block, (size_t)n))
			break;
	return NULL;
}

void run_spec_init(struct run_spec *s)
{
	*s = (struct run_spec){
		.userns_fd = -1, .mntns_fd = -1, .stdin_fd = -1, .spill_fd = {-1, -1}};
}

static void child(const struct run_spec *s, int in, const int out[static 2])
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)dup2(in, 0);
	(void)dup2(out[0], 1);
	(void)dup2(s->stderr_mode == RUN_STDERR_MERGED ? out[0] : out[1], 2);
	for (const char *const *e = s->env; e && *e; e++)
		(void)putenv((char *)(uintptr_t)*e);
	/* The tests' workspace is where they stand. */
	if (strcmp(s->cwd, "/workspace") != 0 && chdir(s->cwd))
		_exit(125);
	(void)execl("/bin/bash", "bash", "-c", s->shell, (char *)NULL);
	_exit(127);
}

static int run_begin(const struct run_spec *s, struct run *r)
{
	int in[2] = {-1, -1}, out[2][2];

	if (pipe2(in, O_CLOEXEC) || pipe2(out[0], O_CLOEXEC) || pipe2(out[1], O_CLOEXEC))
		return ret_nerrno();
	r->pid = fork();
	if (r->pid < 0)
		return ret_nerrno();
	if (!r->pid) {
		int ends[2] = {out[0][1], out[1][1]};

		child(s, in[0], ends);
	}
	/* Here too: a kill may come before the child has done it. */
	(void)setpgid(r->pid, r->pid);
	(void)close(in[0]);
	(void)close(out[0][1]);
	(void)close(out[1][1]);
	r->in_fd = in[1];
	if (s->stdin_data)
		(void)!io_write_full(r->in_fd, s->stdin_data, s->stdin_len);
	if (!s->keep_input)
		(void)close(steal_fd(&r->in_fd));
	for (int i = 0; i < 2; i++) {
		r->out_fd[i] = out[i][0];
		r->job[i].from = out[i][0];
		r->job[i].to = s->spill_fd[i];
		if (s->spill_fd[i] < 0)
			continue;
		if (pthread_create(&r->pump[i], NULL, pump, &r->job[i]))
			return -EAGAIN;
		r->npumps++;
	}
	return 0;
}

int client_run_start(struct client *c, const struct client_terms *terms, struct run_spec *spec,
		     const char *what, struct diag *diag, struct client_run **ret)
{
	struct run *r = calloc(1, sizeof(*r));
	struct client_run *cr = calloc(1, sizeof(*cr));
	int err;

	(void)c;
	(void)terms;
	(void)what;
	if (!r || !cr)
		tap_fatal("memory");
	r->started_ms = io_now_ms();
	r->deadline_ms = spec->timeout_ms ? r->started_ms + (long long)spec->timeout_ms : 0;
	err = run_begin(spec, r);
	if (err)
		return diag_set(diag, err, "fork");
	cr->run = r;
	*ret = cr;
	return 0;
}

uint64_t client_run_token(const struct client_run *cr)
{
	(void)cr;
	return 1;
}

uint64_t client_run_denied(const struct client_run *cr)
{
	(void)cr;
	return 1;
}

int client_denials(struct client *c, uint64_t token, size_t max, struct client_denials *ret)
{
	(void)c;
	(void)token;
	*ret = (struct client_denials){.max = max};
	return 0;
}

void client_denials_release(struct client_denials *d)
{
	*d = (struct client_denials){0};
}

struct run *client_run_of(struct client_run *cr)
{
	return cr->run;
}

int run_asked(struct run *r, struct run_asked **ret, size_t *ret_n, uint64_t *ret_total)
{
	(void)r;
	*ret = NULL;
	*ret_n = 0;
	*ret_total = 0;
	return 0;
}

int run_kill(struct run *r, unsigned grace_ms)
{
	(void)grace_ms;
	r->killed = true;
	(void)kill(-r->pid, SIGKILL);
	return 0;
}

static int collect(struct run *r, int status, struct run_result *ret)
{
	(void)kill(-r->pid, SIGKILL);
	for (unsigned i = 0; i < r->npumps; i++)
		(void)pthread_join(r->pump[i], NULL);
	r->npumps = 0;
	*ret = (struct run_result){.killed = r->killed, .timed_out = r->timed_out};
	ret->wall_s = (double)(io_now_ms() - r->started_ms) / 1000;
	if (WIFSIGNALED(status)) {
		ret->state = RUN_SIGNALED;
		ret->signal = WTERMSIG(status);
		ret->code = 128 + ret->signal;
	} else if (WEXITSTATUS(status) == 125) {
		ret->state = RUN_NOT_STARTED;
		ret->code = 125;
		(void)snprintf(ret->step, sizeof(ret->step), "cwd");
		(void)snprintf(ret->error, sizeof(ret->error), "no such directory");
	} else {
		ret->state = RUN_EXITED;
		ret->code = WEXITSTATUS(status);
	}
	return 1;
}

bool run_command(struct run *r, struct run_result *ret)
{
	(void)r;
	(void)ret;
	return false;
}

int run_wait(struct run *r, uint64_t timeout_ms, struct run_result *ret)
{
	long long until = timeout_ms > 1000000000ull ? 0 : io_now_ms() + (long long)timeout_ms;

	for (;;) {
		int status;
		pid_t p = waitpid(r->pid, &status, WNOHANG);

		if (p == r->pid)
			return collect(r, status, ret);
		if (p < 0)
			return ret_nerrno();
		if (r->deadline_ms && io_now_ms() >= r->deadline_ms && !r->timed_out) {
			r->timed_out = true;
			(void)kill(-r->pid, SIGKILL);
		}
		if (until && io_now_ms() >= until)
			return 0;
		(void)usleep(2000);
	}
}

ssize_t run_input(struct run *r, const void *p, size_t n)
{
	ssize_t done;

	if (r->in_fd < 0)
		return -EPIPE;
	if (!n) {
		(void)close(steal_fd(&r->in_fd));
		return 0;
	}
	(void)fcntl(r->in_fd, F_SETFL, O_NONBLOCK);
	done = write(r->in_fd, p, n);
	return done >= 0 ? done : errno == EAGAIN ? 0 : -EPIPE;
}

void client_run_free(struct client_run *cr)
{
	struct run_result res;
	struct run *r;

	if (!cr)
		return;
	r = cr->run;
	if (r->npumps) {
		(void)run_kill(r, 0);
		while (!run_wait(r, 1000, &res))
			continue;
	}
	if (r->in_fd >= 0)
		(void)close(r->in_fd);
	(void)close(r->out_fd[0]);
	(void)close(r->out_fd[1]);
	free(r);
	free(cr);
}

/* ---- state ---- */

int ctl_status(struct ctl *c, struct diag *diag, struct ctl_status *ret)
{
	(void)diag;
	*ret = (struct ctl_status){.token = 1, .dirty = true, .modified = 1};
	(void)snprintf(ret->env, sizeof(ret->env), "%s", c->c->env);
	(void)snprintf(ret->base, sizeof(ret->base), "host");
	return 0;
}

void ctl_status_release(struct ctl_status *s)
{
	(void)s;
}

int ctl_commit(struct ctl *c, const char *message, const char *label, const char *expect,
	       struct diag *diag, struct ctl_commit *ret)
{
	(void)label;
	(void)diag;
	if (expect && strcmp(expect, "good") != 0)
		return -ESTALE;
	if (!strcmp(message, "nothing"))
		return -ENODATA;
	*ret = (struct ctl_commit){.added = 1, .message = strdup(message)};
	(void)snprintf(ret->id, sizeof(ret->id), "%064x", ++c->c->commits);
	return 0;
}

int ctl_checkpoint(struct ctl *c, const char *message, const char *label, struct diag *diag,
		   struct ctl_commit *ret)
{
	(void)c;
	(void)message;
	(void)label;
	(void)diag;
	(void)ret;
	return -ENODATA;
}

void ctl_commit_release(struct ctl_commit *c)
{
	free(c->message);
}

int ctl_tag(struct ctl *c, const char *name, const char *rev, bool force, struct diag *diag,
	    struct ctl_ref *ret)
{
	(void)c;
	(void)rev;
	(void)force;
	(void)diag;
	*ret = (struct ctl_ref){0};
	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	return 0;
}

void ctl_ref_release(struct ctl_ref *r)
{
	free(r->message);
}

int ctl_refs(struct ctl *c, bool all, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_ref *r), void *arg)
{
	(void)c;
	(void)all;
	(void)diag;
	(void)fn;
	(void)arg;
	return 0;
}

int ctl_rollback(struct ctl *c, const char *rev, bool force, struct diag *diag,
		 struct ctl_moved *ret)
{
	(void)c;
	if (!strcmp(rev, "busy") && !force)
		return diag_set(diag, -EBUSY, "1 command is running");
	if (strcmp(rev, "base") != 0 && strcmp(rev, "busy") != 0)
		return diag_set(diag, -ENOENT, "no revision %s", rev);
	*ret = (struct ctl_moved){.from = "aaaaaaaaaaaaaaaa", .saved = true};
	return 0;
}

int ctl_env_fork(const char *data_dir, const char *env, const char *rev, const char *name,
		 struct diag *diag, struct ctl_env_info ret[static 2])
{
	(void)data_dir;
	if (!strcmp(name, "taken"))
		return diag_set(diag, -EEXIST, "there is an environment 'taken' already");
	if (strcmp(rev, "head") != 0 && strcmp(rev, "base") != 0)
		return diag_set(diag, -ENOENT, "no revision %s", rev);
	ret[0] = ret[1] = (struct ctl_env_info){.dirty = !strcmp(rev, "head")};
	(void)snprintf(ret[0].name, sizeof(ret[0].name), "%s", name);
	(void)snprintf(ret[1].name, sizeof(ret[1].name), "%s", env);
	return 0;
}

int ctl_reset(struct ctl *c, bool force, struct diag *diag, struct ctl_moved *ret)
{
	const char *mark = getenv("FAKE_RESET_FILE");

	(void)force;
	(void)diag;
	c->c->resets++;
	if (mark)
		(void)close(open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	*ret = (struct ctl_moved){0};
	return 0;
}

int ctl_log(struct ctl *c, bool all, bool automatic, struct diag *diag,
	    int (*fn)(void *arg, const struct ctl_commit *cm), void *arg)
{
	(void)all;
	(void)automatic;
	(void)diag;
	for (unsigned i = c->c->commits; i; i--) {
		struct ctl_commit cm = {.message = (char[]){"m"}};

		(void)snprintf(cm.id, sizeof(cm.id), "%064x", i);
		if (fn(arg, &cm))
			break;
	}
	return 0;
}

int ctl_diff(struct ctl *c, const char *a, const char *b, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_change *ch), void *arg)
{
	static const struct ctl_change ch[] = {
		{.kind = 'M', .path = "/workspace/a", .mode = S_IFREG | 0644},
		{.kind = 'A', .path = "/workspace/ab", .mode = S_IFREG | 0644},
		{.kind = 'D', .path = "/workspace/d/x", .mode = S_IFREG | 0644},
	};

	(void)c;
	(void)a;
	(void)b;
	(void)diag;
	for (size_t i = 0; i < ARRAY_SIZE(ch); i++)
		if (fn(arg, &ch[i]))
			break;
	return 0;
}

int ctl_cat(struct ctl *c, const char *rev, const char *path, struct diag *diag, int *ret_fd,
	    uint32_t *ret_mode)
{
	char name[] = "/tmp/fake-cat-XXXXXX";
	int fd;

	(void)c;
	(void)diag;
	if (strcmp(path, "/workspace/a") != 0)
		return -ENOENT;
	fd = mkostemp(name, O_CLOEXEC);
	if (fd < 0)
		return ret_nerrno();
	(void)unlink(name);
	if (io_write_full(fd, rev ? "one\ntwo\n" : "one\nzwei\n", rev ? 8 : 9))
		return -EIO;
	*ret_fd = fd;
	*ret_mode = S_IFREG | 0644;
	return 0;
}

int ctl_changes(struct ctl *c, uint64_t token, struct diag *diag, uint64_t *ret_token,
		int (*fn)(void *arg, const char *path, char what), void *arg)
{
	(void)c;
	(void)diag;
	*ret_token = token + 1;
	return fn(arg, "/workspace/changed.c", 'M');
}

int ctl_gc(const struct ctl_gc_opts *o, struct diag *diag, struct ctl_gc_sum *ret)
{
	(void)diag;
	*ret = (struct ctl_gc_sum){.layers = 2, .records = 5, .chunks = 1, .chunk_bytes = 2048};
	return o->progress && o->progress(o->arg, "looking", 1, 2) ? -ECANCELED : 0;
}

/* Nothing is provisioned here: its tools are not listed without a base of their own. */
int client_run_keep(struct client_run *cr, struct diag *diag)
{
	(void)cr;
	return diag_set(diag, -ENOENT, "nothing is provisioned");
}

int client_run_drop(struct client_run *cr, struct diag *diag)
{
	(void)cr;
	(void)diag;
	return 0;
}

int run_output(struct run *r, int stream, struct buf *head, struct buf *tail, uint64_t *ret_skipped)
{
	(void)r;
	(void)stream;
	(void)head;
	(void)tail;
	*ret_skipped = 0;
	return 0;
}

int ctl_ls(struct ctl *c, const char *rev, const char *path, bool below, struct diag *diag,
	   int (*fn)(void *arg, const struct ctl_file *f), void *arg)
{
	(void)c;
	(void)rev;
	(void)below;
	(void)fn;
	(void)arg;
	return diag_set(diag, -ENOENT, "%s is not there", path);
}
