/* rattan bootstrap: a distribution's own tools make a base, as root of trees and nobody outside. */
#include "cli/bootstrap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "cli/bootstrap_plan.h"

#define POLL_MS 200
#define OUT_MAX (64ull << 30)

/* ---- begin and end ---- */

static void ending(sigset_t *set)
{
	(void)sigemptyset(set);
	(void)sigaddset(set, SIGINT);
	(void)sigaddset(set, SIGTERM);
	(void)sigaddset(set, SIGHUP);
}

/* Takes a signal that has come, if one has. */
static bool stop_asked(struct boot *b)
{
	static const struct timespec now;
	sigset_t set;
	int sig;

	ending(&set);
	sig = sigtimedwait(&set, NULL, &now);
	b->stopped = sig > 0 ? sig : b->stopped;
	return sig > 0;
}

static int say_stopped(const struct boot *b)
{
	return cli_fail(128 + b->stopped, "bootstrap: stopped; nothing is left of it");
}

struct look {
	const char *name;
	bool there;
};

static int see_base(void *arg, const struct ctl_base_info *i)
{
	struct look *l = arg;

	l->there |= !strcmp(i->name, l->name);
	return 0;
}

int boot_begin(struct boot *b, const struct boot_args *a)
{
	struct look l = {.name = a->name};
	struct diag diag = {0};
	sigset_t set;
	int r;

	*b = (struct boot){.args = a, .net.local = a->local, .lock_fd = -1, .data_fd = -1};
	ending(&set);
	(void)sigprocmask(SIG_BLOCK, &set, &b->mask);
	if (!a->replace && ctl_base_list(NULL, &diag, see_base, &l) == 0 && l.there)
		return cli_fail(CLI_CONFLICT,
				"bootstrap: there is a base \"%s\"; --replace makes it anew",
				a->name);
	r = boot_hold(b, &diag);
	if (r < 0)
		return cli_fail_errno(r, &diag, "bootstrap");
	(void)snprintf(b->base, sizeof(b->base), "%s", b->name);
	return -1;
}

void boot_end(struct boot *b)
{
	struct diag diag = {0};
	int r;

	while (b->nenvs)
		if (ctl_env_remove(NULL, b->env[--b->nenvs], true, &diag) < 0) {
			fprintf(stderr, "rattan: %s is left: %s\n", b->env[b->nenvs], diag.text);
			b->left = true;
		}
	r = b->has_base ? ctl_base_remove(NULL, b->base, &diag) : 0;
	if (r < 0 && r != -ENOENT) {
		fprintf(stderr, "rattan: the base %s is left: %s\n", b->base, diag.text);
		b->left = true;
	}
	boot_let_go(b);
	net_rules_release(&b->net);
	(void)sigprocmask(SIG_SETMASK, &b->mask, NULL);
}

void boot_env(struct boot *b)
{
	(void)snprintf(b->env[b->nenvs], sizeof(b->env[0]), "%s.%u", b->name, b->nenvs);
	b->nenvs++;
}

/* ---- a step ---- */

static int outcome(const struct boot *b, struct client_run *cr, const struct boot_step *s,
		   const struct run_result *res)
{
	struct diag diag = {0};
	int r;

	if (b->stopped)
		return say_stopped(b);
	if (res->state == RUN_NOT_STARTED)
		return cli_fail(CLI_NO_SANDBOX, "the sandbox could not start: %s: %s", res->step,
				res->error);
	if (res->code && res->code == s->not_there)
		return -2;
	if (res->code)
		return boot_tell_failed(s, cr, res);
	r = client_run_keep(cr, &diag);
	return r < 0 ? cli_fail_errno(r, &diag, "bootstrap") : -1;
}

static int run_step(struct boot *b, struct client *c, const struct boot_step *s, int in_fd)
{
	const struct client_terms terms = {.provision = true};
	const char *argv[22] = {"/bin/sh", "-c", s->script, "bootstrap"};
	struct client_run *cr;
	struct run_result res = {0};
	struct diag diag = {0};
	struct run_spec spec;
	int r, code;

	run_spec_init(&spec);
	for (size_t i = 0; s->words && s->words[i] && i < 16; i++)
		argv[4 + i] = s->words[i];
	spec.argv = argv;
	spec.net_rules = s->online ? &b->net : NULL;
	if (s->online && !b->told)
		cli_net_tell_shut(&b->net);
	b->told = b->told || s->online;
	spec.stdin_fd = in_fd;
	spec.spill_fd[0] = s->out_fd;
	spec.spill_fd[1] = b->args->verbose ? STDERR_FILENO : -1;
	spec.limits.output = OUT_MAX;
	r = client_run_start(c, &terms, &spec, s->what, &diag, &cr);
	if (r < 0) {
		(void)cli_fail_errno(r, &diag, "bootstrap");
		return r == -ENOENT || r == -EBADMSG ? cli_exit_of(r) : CLI_NO_SANDBOX;
	}
	while ((r = run_wait(client_run_of(cr), POLL_MS, &res)) == 0)
		if (stop_asked(b))
			(void)run_kill(client_run_of(cr), 1000);
	code = r < 0 ? cli_fail_errno(r, NULL, "bootstrap") : outcome(b, cr, s, &res);
	client_run_free(cr);
	return code;
}

/* The content of @dir as an archive to read; *ret_pid makes it. */
static int pack_dir(const struct boot *b, const char *dir, int *ret_fd, pid_t *ret_pid)
{
	struct stat st;
	int fd[2];

	if (stat(dir, &st) < 0)
		return ret_nerrno();
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (access(dir, R_OK | X_OK) < 0 || pipe2(fd, O_CLOEXEC) < 0)
		return ret_nerrno();
	*ret_pid = fork();
	if (*ret_pid == 0) {
		(void)sigprocmask(SIG_SETMASK, &b->mask, NULL);
		(void)dup2(fd[1], STDOUT_FILENO);
		(void)execlp("tar", "tar", "-C", dir, "--sort=name", "--owner=0", "--group=0",
			     "-cf", "-", ".", (char *)NULL);
		_exit(127);
	}
	(void)close(fd[1]);
	if (*ret_pid < 0) {
		(void)close(fd[0]);
		return ret_nerrno();
	}
	*ret_fd = fd[0];
	return 0;
}

static int run_with(struct boot *b, struct client *c, const struct boot_step *s)
{
	cleanup_fd int in = -1;
	int r, status = 0;
	pid_t pid = -1;

	r = s->dir ? pack_dir(b, s->dir, &in, &pid) : 0;
	if (s->file)
		r = (in = open(s->file, O_RDONLY | O_CLOEXEC)) < 0 ? ret_nerrno() : 0;
	if (r < 0)
		return cli_fail_errno(r, NULL, s->dir ? s->dir : s->file);
	r = run_step(b, c, s, in);
	cleanup_fdp(&in);
	in = -1;
	if (pid > 0 && (waitpid(pid, &status, 0) < 0 || status) && r == -1)
		r = cli_fail(CLI_FAILED, "bootstrap: %s could not be read whole", s->dir);
	return r;
}

int boot_run(struct boot *b, const struct boot_step *s)
{
	const struct ctl_env_opts o = {
		.env = b->env[b->nenvs - 1], .base = s->base, .create = true};
	struct client *c;
	int r = client_new(&o, &c);

	if (r < 0)
		return cli_fail_errno(r, NULL, "bootstrap");
	fprintf(stderr, "rattan: %s\n", s->what);
	r = run_with(b, c, s);
	client_free(c);
	return r;
}

/* ---- archives ---- */

struct importing {
	struct boot *b;
	struct cli_bar bar;
};

static int on_import(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	struct importing *x = arg;

	(void)stage;
	cli_bar_put(&x->bar, "unpacking", "MiB", done >> 20, total >> 20);
	return stop_asked(x->b);
}

static int import(struct boot *b, int fd, struct ctl_import_opts *o, struct ctl_import_sum *sum)
{
	struct importing x = {.b = b};
	struct diag diag = {0};
	int r = lseek(fd, 0, SEEK_SET) < 0 || dup2(fd, STDIN_FILENO) < 0 ? ret_nerrno() : 0;

	o->kind = "tar";
	o->src = "-";
	o->progress = on_import;
	o->arg = &x;
	cli_bar_start(&x.bar);
	if (r == 0)
		r = ctl_import(o, &diag, sum);
	cli_bar_clear(&x.bar);
	if (b->stopped && r < 0)
		return say_stopped(b);
	return r < 0 ? cli_fail_errno(r, &diag, "bootstrap") : -1;
}

int boot_import(struct boot *b, int fd, const char *name, unsigned strip)
{
	struct ctl_import_opts o = {.name = name, .strip = strip};
	struct ctl_import_sum sum = {0};
	int r;

	/* Whatever comes of it: a signal may come when it is just there. */
	b->has_base = true;
	r = import(b, fd, &o, &sum);
	return r == -1 && b->stopped ? say_stopped(b) : r;
}

int boot_seal(struct boot *b, int fd)
{
	const char *name = b->args->name;
	struct ctl_import_opts o = {.name = name, .replace = b->args->replace};
	struct ctl_import_sum sum = {0};
	int r = import(b, fd, &o, &sum);

	if (r != -1)
		return r;
	if (b->args->json)
		printf("{\"name\":\"%s\",\"id\":\"%s\",\"entries\":%llu}\n", name, sum.id,
		       (unsigned long long)sum.entries);
	else
		printf("%s is %.12s: %llu files\nrattan run --base %s@%.12s -e NEW -- COMMAND works in it\n",
		       name, sum.id, (unsigned long long)sum.entries, name, sum.id);
	return cli_done();
}

/* ---- the command ---- */

/* What only the other kind takes; NULL: nothing of it is there. */
static const char *misplaced(const struct boot_args *a, const struct bootstrap_plan *p, bool arch)
{
	const struct {
		bool there, arch;
		const char *name;
	} v[] = {
		{a->mirror, false, "--mirror"},
		{a->include.n, false, "--include"},
		{a->variant, false, "--variant"},
		{a->components, false, "--components"},
		{a->add, false, "--add"},
		{a->local, false, "--allow-local-binding"},
		{p->archive, true, "--archive"},
		{p->sha256, true, "--sha256"},
		{p->signature, true, "--signature"},
		{a->tool, false, "--tool"},
		{a->config, true, "--config"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(v); i++)
		if (v[i].there && v[i].arch != arch)
			return v[i].name;
	return NULL;
}

static int run_kind(struct boot_args *a, struct bootstrap_plan *plan, char **words, int n)
{
	bool arch = n && !strcmp(words[0], "arch");
	const char *other;

	if (n && !arch && strcmp(words[0], "debian") != 0)
		return cli_fail(CLI_USAGE, "bootstrap: '%s' is neither debian nor arch", words[0]);
	if (n < 2 || n > (arch ? 2 : 3))
		return cli_fail(CLI_USAGE,
				"bootstrap: give debian, a name for the base, and perhaps a suite; "
				"or arch and a name");
	other = misplaced(a, plan, arch);
	if (other)
		return cli_fail(CLI_USAGE, "bootstrap: %s is for %s; see rattan bootstrap --help",
				other, arch ? "debian" : "arch");
	a->name = words[1];
	a->suite = n == 3 ? words[2] : NULL;
	plan->keyring = a->keyring;
	if (arch)
		return bootstrap_arch(a, plan);
	if (a->tool && strcmp(a->tool, "mmdebstrap") != 0 && strcmp(a->tool, "debootstrap") != 0)
		return cli_fail(CLI_USAGE,
				"bootstrap: --tool is mmdebstrap or debootstrap, not '%s'",
				a->tool);
	a->variant = a->variant ? a->variant : "minbase";
	a->components = a->components ? a->components : "main";
	return bootstrap_debian(a);
}

static int run(int argc, char **argv)
{
	struct boot_args a = {0};
	struct bootstrap_plan plan = {0};
	const struct cli_opt opts[] = {
		{"mirror", 0, CLI_TEXT, &a.mirror, "URL", "debian: default: this host's own"},
		{"include", 0, CLI_LIST, &a.include, "PACKAGE", "debian: a package more"},
		{"variant", 0, CLI_TEXT, &a.variant, "NAME",
		 "debian: minbase (the default), buildd, or - for the standard"},
		{"components", 0, CLI_TEXT, &a.components, "LIST",
		 "debian: parts of the archive, with commas; default: main"},
		{"tool", 0, CLI_TEXT, &a.tool, "NAME",
		 "debian: mmdebstrap or debootstrap; default: the first of them that is here"},
		{"add", 0, CLI_TEXT, &a.add, "DIR", "debian: what is in DIR goes over the root"},
		{"allow-local-binding", 0, CLI_FLAG, &a.local, NULL,
		 "debian: the mirror may be on this machine's loopback"},
		{"archive", 0, CLI_TEXT, &plan.archive, "FILE",
		 "arch: the official bootstrap archive (.tar.zst, .tar.gz): a file, or a mirror's https://; default: this host's pacman"},
		{"sha256", 0, CLI_TEXT, &plan.sha256, "HEX", "arch: its digest"},
		{"signature", 0, CLI_TEXT, &plan.signature, "FILE",
		 "arch: its detached signature; of a mirror's archive: .sig beside it"},
		{"keyring", 0, CLI_TEXT, &a.keyring, "FILE",
		 "of those who may have signed; default: the host's own of the distribution"},
		{"config", 0, CLI_TEXT, &a.config, "FILE",
		 "arch: JSON: the same, and mirrors, packages, directories, upgrade"},
		{"replace", 0, CLI_FLAG, &a.replace, NULL,
		 "give the name of a base that is there to this one"},
		{"verbose", 'v', CLI_FLAG, &a.verbose, NULL, "show what the tools say"},
		{"json", 0, CLI_FLAG, &a.json, NULL, "as JSON"},
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_bootstrap, opts, argc, argv, false, &rest, &n);

	if (r < 0)
		r = run_kind(&a, &plan, rest, n);
	cli_list_release(&a.include);
	return r;
}

const struct cli_command cmd_bootstrap = {
	.name = "bootstrap",
	.args = "debian NAME [SUITE] [OPTIONS] | arch NAME [OPTIONS]",
	.summary = "a base from a distribution's packages",
	.details =
		"debian: mmdebstrap or debootstrap of this host makes the tree, as root of an environment, without\n"
		"privileges; one of them must be installed. The network is the mirror's host alone, and the base\n"
		"names that mirror. The same packages by the same tool give the same id; SOURCE_DATE_EPOCH, or else\n"
		"the date of the mirror's release, is the latest time in it.\n\n"
		"arch: the bootstrap archive, which has to be what --sha256 says, or signed by somebody of\n"
		"--keyring, or both; curl or wget of this host fetches it from a mirror. In it pacman is set up, a user 1000 and the mirror list are made, and the\n"
		"packages and directories of --config are put; the network is the mirrors alone.\n"
		"Without --archive pacman of this host makes the tree: base and the packages of --config, signed by\n"
		"whom this host's pacman trusts or by a key of --keyring, from the mirrors of --config or of this host.\n\n"
		"What fails leaves nothing. run --base NAME@ID demands that the base is what was made.\n\n"
		"A --config:\n"
		"  { \"archive\": \"archlinux-bootstrap-x86_64.tar.zst\", \"sha256\": \"...\",\n"
		"    \"mirrors\": [\"https://archive.archlinux.org/repos/2026/01/15\"],\n"
		"    \"packages\": [\"git\", \"base-devel\"], \"directories\": [{\"from\": \"skel\", \"to\": \"/etc/skel\"}] }\n\n"
		"Examples:\n  rattan bootstrap debian deb12 bookworm --include git\n"
		"  rattan bootstrap arch arch --config arch.json\n",
	.run = run,
};
