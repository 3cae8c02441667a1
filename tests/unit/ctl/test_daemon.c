/* rattan-fs through the client library: real processes, a real store, real mounts. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "tests/lib/tap.h"
#include "tests/unit/ctl/rig.h"

static void first_use(const struct place *p)
{
	long long t = io_now_ms();
	struct ctl *c = open_env(p, NULL);
	struct ctl_attach a, b;
	struct ctl_status st;
	struct diag d = {0};
	struct stat s1, s2;
	char text[64];

	eq_int(ctl_attach(c, &d, &a), 0, "attach: %s", d.text);
	printf("# first open and attach: %lld ms\n", io_now_ms() - t);
	ok(fstat(a.root_fd, &s1) == 0 && S_ISDIR(s1.st_mode), "the root is a directory");
	ok(a.userns_fd >= 0 && a.mntns_fd >= 0, "namespaces come along");
	eq_str(a.writable, "/workspace\n/tmp\n/var/tmp\n/home/user", "the agent's places");
	eq_int(put_file(c, "workspace/a", "hello"), 0, "a file is written");
	eq_int(get_file(c, "workspace/a", text), 0, "and read");
	eq_str(text, "hello", "as it was");
	ok(put_file(c, "usr/a", "no") < 0, "elsewhere it is refused");
	eq_int(ctl_attach(c, NULL, &b), 0, "attached again");
	ok(fstat(b.root_fd, &s2) == 0 && s1.st_dev == s2.st_dev && a.generation == b.generation,
	   "the same mount");
	ctl_attach_release(&a);
	ctl_attach_release(&b);
	eq_int(ctl_status(c, &d, &st), 0, "status: %s", d.text);
	eq_str(st.env, "default", "name");
	eq_str(st.base, "host", "base");
	eq_str(st.head, "", "no commit yet");
	ok(st.dirty && st.added + st.modified > 0, "dirty");
	ok(st.daemon_pid > 1 && kill(st.daemon_pid, 0) == 0, "a process serves it");
	ok(st.overlays && !st.overlays[0] && st.nbinds == 0, "no overlays, no binds");
	ctl_status_release(&st);
	ctl_close(c);
}

static int count_commits(void *arg, const struct ctl_commit *cm)
{
	(void)cm;
	++*(int *)arg;
	return 0;
}

static int count_refs(void *arg, const struct ctl_ref *r)
{
	*(int *)arg += !strchr(r->name, '/');
	return 0;
}

/* @one has the label "v1"; head is @two, with changes on top. */
static void names(struct ctl *c, const struct ctl_commit *one, const struct ctl_commit *two)
{
	struct diag d = {0};
	struct ctl_commit none;
	struct ctl_ref ref;
	int n = 0;

	eq_int(ctl_tag(c, "v1", NULL, false, &d, &ref), -EEXIST, "a label is a tag: %s", d.text);
	ok(strstr(d.text, "'v1' names ") && !strncmp(strstr(d.text, "names ") + 6, one->id, 12),
	   "which says what it names");
	memset(&d, 0, sizeof(d));
	eq_int(put_file(c, "workspace/b", "b"), 0, "write");
	eq_int(ctl_commit(c, "x", "v1", NULL, &d, &none), -EEXIST, "nor as a label: %s", d.text);
	memset(&d, 0, sizeof(d));
	eq_int(ctl_commit(c, "x", "a b", NULL, &d, &none), -EINVAL, "a bad label: %s", d.text);
	memset(&d, 0, sizeof(d));
	eq_int(ctl_tag(c, "v1", "head", true, &d, &ref), 0, "moved: %s", d.text);
	eq_str(ref.id, two->id, "to");
	eq_str(ref.was, one->id, "from");
	eq_str(ref.message, "second", "message");
	ctl_ref_release(&ref);
	eq_int(ctl_tag(c, "v0", "v1~1", false, &d, &ref), 0, "another");
	eq_str(ref.id, one->id, "of the first");
	eq_str(ref.was, "", "which had none of that name");
	ctl_ref_release(&ref);
	eq_int(ctl_refs(c, false, &d, count_refs, &n), 0, "listed");
	eq_int(n, 2, "both");
	eq_int(ctl_untag(c, "v0", &d, &ref), 0, "removed");
	eq_str(ref.id, one->id, "what it named");
	ctl_ref_release(&ref);
	eq_int(ctl_untag(c, "v0", &d, &ref), -ENOENT, "once");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_tag(c, "v0", "v0", false, &d, &ref), -ENOENT, "no such state: %s", d.text);
}

static void history(const struct place *p)
{
	struct ctl *c = open_env(p, NULL);
	struct ctl_commit one, two, none;
	struct ctl_moved mv;
	struct ctl_attach a, b;
	struct diag d = {0};
	char text[64];
	int n = 0;

	eq_int(put_file(c, "workspace/a", "one"), 0, "write");
	eq_int(ctl_commit(c, "first", "v1", NULL, &d, &one), 0, "commit: %s", d.text);
	ok(strlen(one.id) == 64 && one.parent[0] == 0, "it has an id and no parent");
	eq_str(one.message, "first", "message");
	eq_str(one.label, "v1", "label");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_commit(c, "again", NULL, NULL, &d, &none), -ENODATA, "nothing to commit: %s",
	       d.text);
	eq_int(put_file(c, "workspace/a", "two"), 0, "write");
	eq_int(ctl_commit(c, "x", NULL, "base", NULL, &none), -ESTALE,
	       "head is not what was expected");
	eq_int(ctl_commit(c, "second", NULL, one.id, &d, &two), 0, "commit on the expected head");
	eq_str(two.parent, one.id, "its parent is the first");
	eq_int(put_file(c, "workspace/a", "three"), 0, "write, uncommitted");

	eq_int(ctl_attach(c, NULL, &a), 0, "attach");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_rollback(c, one.id, false, &d, &mv), 0, "rollback: %s", d.text);
	ok(mv.saved && !strcmp(mv.to, one.id) && strlen(mv.from) == 64, "what was left is kept");
	eq_int(ctl_attach(c, NULL, &b), 0, "attach");
	ok(a.generation != b.generation && strcmp(a.root, b.root) != 0, "a fresh mount");
	ok(openat(a.root_fd, "workspace/a", O_RDONLY | O_CLOEXEC) < 0, "the old one is gone");
	ctl_attach_release(&a);
	ctl_attach_release(&b);
	(void)get_file(c, "workspace/a", text);
	eq_str(text, "one", "the first state");
	eq_int(ctl_undo(c, false, &d, &mv), 0, "undo");
	(void)get_file(c, "workspace/a", text);
	eq_str(text, "three", "brings back what was not committed");
	eq_int(put_file(c, "workspace/a", "four"), 0, "write");
	eq_int(ctl_reset(c, false, &d, &mv), 0, "reset");
	(void)get_file(c, "workspace/a", text);
	eq_str(text, "two", "to the last commit: what undo brought back was not committed");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_rollback(c, "feedfeed", false, &d, &mv), -ENOENT, "no such revision: %s",
	       d.text);
	ok(d.text[0] != 0, "with a sentence");
	eq_int(ctl_log(c, false, false, NULL, count_commits, &n), 0, "log");
	eq_int(n, 2, "commits");
	names(c, &one, &two);
	n = 0;
	eq_int(ctl_log(c, true, true, NULL, count_commits, &n), 0, "log of everything");
	eq_int(n, 4, "with the automatic states");
	ctl_commit_release(&one);
	ctl_commit_release(&two);
	ctl_close(c);
}

/* An automatic state on the way: head stays, what it holds is uncommitted, and it can be gone back to. */
static void checkpoints(const struct place *p)
{
	struct ctl *c = open_env(p, NULL);
	struct ctl_commit one, two;
	struct ctl_status before, st;
	struct ctl_moved mv;
	struct diag d = {0};
	char text[64];

	eq_int(ctl_reset(c, false, &d, &mv), 0, "reset: %s", d.text);
	eq_int(ctl_status(c, &d, &before), 0, "status");
	eq_int(ctl_checkpoint(c, "m", "l", &d, &one), -ENODATA, "nothing to keep");
	eq_int(put_file(c, "workspace/c", "one"), 0, "write");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_checkpoint(c, "m", "l", &d, &one), 0, "checkpoint: %s", d.text);
	ok(one.automatic && strlen(one.id) == 64, "an automatic state");
	eq_str(one.parent, before.head, "its parent is the commit");
	eq_str(one.label, "l", "label");
	eq_str(one.message, "m", "message");
	eq_int(put_file(c, "workspace/c", "two"), 0, "write");
	eq_int(ctl_checkpoint(c, "m", "l", &d, &two), 0, "another");
	eq_str(two.parent, before.head, "its parent is the commit, too");
	ok(strcmp(one.id, two.id) != 0, "it is another");
	eq_int(ctl_status(c, &d, &st), 0, "status");
	eq_str(st.head, before.head, "head is what it was");
	ok(st.dirty && st.added == 1, "what they hold is uncommitted");
	eq_int(ctl_rollback(c, one.id, false, &d, &mv), 0, "back to the first");
	ok(!mv.saved && !strcmp(mv.from, two.id), "nothing more had to be kept");
	(void)get_file(c, "workspace/c", text);
	eq_str(text, "one", "as it was");
	eq_int(ctl_reset(c, false, &d, &mv), 0, "reset");
	eq_str(mv.to, before.head, "to the commit");
	ctl_status_release(&before);
	ctl_status_release(&st);
	ctl_commit_release(&one);
	ctl_commit_release(&two);
	ctl_close(c);
}

static int count_changes(void *arg, const struct ctl_change *ch)
{
	*(int *)arg += ch->path[0] == '/';
	return 0;
}

static int count_paths(void *arg, const char *path, char what)
{
	(void)what;
	*(int *)arg += !strcmp(path, "/workspace/seen");
	return 0;
}

static void reads(struct ctl *c, const char *rev, const char *want)
{
	char text[64] = {0};
	uint32_t mode;
	int fd = -1;

	eq_int(ctl_cat(c, rev, "/workspace/v", NULL, &fd, &mode), 0, "cat at %s", rev);
	ok(fd >= 0 && io_read_full(fd, text, sizeof(text) - 1) > 0 && !strcmp(text, want), "%s: %s",
	   rev, text);
	cleanup_fdp(&fd);
}

/* What stays open from one question to the next is of the state that is asked about. */
static void states(struct ctl *c)
{
	static const char *const all[] = {"1", "2", "3"};
	struct ctl_commit cm;
	struct ctl_ref ref = {0};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (put_file(c, "workspace/v", all[i]) < 0 ||
		    ctl_commit(c, all[i], NULL, NULL, NULL, &cm) < 0)
			tap_fatal("commit");
		ctl_commit_release(&cm);
		reads(c, "head", all[i]);
		if (i)
			reads(c, "head~1", all[i - 1]);
		if (i)
			reads(c, "head", all[i]);
	}
	for (int i = 0; i < 2; i++) {
		reads(c, "head~2", "1");
		reads(c, "head~1", "2");
		reads(c, "head", "3");
	}
	for (size_t i = 0; i < 2; i++) {
		eq_int(ctl_tag(c, "moves", i ? "head" : "head~1", true, NULL, &ref), 0, "tag");
		ctl_ref_release(&ref);
		reads(c, "moves", all[i + 1]);
	}
}

static void looking(const struct place *p)
{
	struct ctl *c = open_env(p, NULL);
	struct diag d = {0};
	struct ctl_status st;
	uint32_t mode = 0;
	uint64_t token;
	char text[64];
	int n = 0, fd = -1;
	ssize_t k;

	eq_int(ctl_status(c, &d, &st), 0, "status");
	eq_int(put_file(c, "workspace/seen", "content"), 0, "write");
	eq_int(ctl_changes(c, st.token, &d, &token, count_paths, &n), 0, "changes: %s", d.text);
	eq_int(n, 1, "the path is among them");
	n = 0;
	eq_int(ctl_changes(c, token, &d, &token, count_paths, &n), 0, "changes since then");
	eq_int(n, 0, "none");
	eq_int(ctl_changes(c, 12345, NULL, &token, count_paths, &n), -ESTALE, "a foreign token");
	ctl_status_release(&st);
	n = 0;
	eq_int(ctl_diff(c, NULL, NULL, &d, count_changes, &n), 0, "diff: %s", d.text);
	ok(n > 0, "there are differences");
	eq_int(ctl_cat(c, NULL, "/workspace/seen", &d, &fd, &mode), 0, "cat: %s", d.text);
	k = io_read_full(fd, text, sizeof(text));
	ok(k == 7 && !memcmp(text, "content", 7) && S_ISREG(mode), "content and mode");
	ok(ftruncate(fd, 0) < 0, "sealed");
	(void)close(fd);
	eq_int(ctl_cat(c, "head", "/workspace/a", NULL, &fd, &mode), 0, "cat at a revision");
	k = io_read_full(fd, text, sizeof(text));
	ok(k == 3 && !memcmp(text, "two", 3), "as it was then");
	(void)close(fd);
	states(c);
	eq_int(ctl_cat(c, NULL, "/workspace", NULL, &fd, &mode), -EISDIR, "a directory");
	eq_int(ctl_cat(c, NULL, "/nope", NULL, &fd, &mode), -ENOENT, "nothing there");
	eq_int(ctl_flush(c, NULL), 0, "flush");
	ctl_close(c);
}

static void leases(const struct place *p)
{
	struct ctl *c = open_env(p, NULL), *other = open_env(p, NULL);
	struct ctl_moved mv;
	struct diag d = {0};
	pid_t pid = fork();
	int pidfd, status;

	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	pidfd = pidfd_open(pid, 0);
	eq_int(ctl_lease(other, "make all", pidfd, &d), 0, "lease");
	eq_int(ctl_rollback(c, "base", false, &d, &mv), -EBUSY, "a rollback waits: %s", d.text);
	ok(strstr(d.text, "make all") != NULL, "and says for what");
	eq_int(ctl_shutdown(c, false, NULL), -EBUSY, "so does the end");
	eq_int(ctl_rollback(c, "base", true, NULL, &mv), 0, "by force it goes");
	ok(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
	   "and the command is dead");
	eq_int(ctl_unlease(other), 0, "unlease");
	eq_int(ctl_undo(c, false, NULL, &mv), 0, "free again");
	eq_int(ctl_lease(other, "x", -1, NULL), 0, "lease without a process");
	ctl_close(other);
	for (int i = 0; i < 100 && ctl_undo(c, false, NULL, &mv) == -EBUSY; i++)
		(void)usleep(10000);
	eq_int(ctl_undo(c, false, NULL, &mv) == -EBUSY, 0, "a closed connection holds nothing");
	(void)close(pidfd);
	ctl_close(c);
}

static void *opener(void *arg)
{
	struct ctl *c = open_env(arg, NULL);
	intptr_t pid = daemon_of(c);

	ctl_close(c);
	return (void *)pid;
}

static void together(struct place *p)
{
	pthread_t t[8];
	void *pid[8];
	int same = 0;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		if (pthread_create(&t[i], NULL, opener, p))
			tap_fatal("no thread");
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		(void)pthread_join(t[i], &pid[i]);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		same += pid[i] && pid[i] == pid[0];
	eq_int(same, 8, "eight clients at once share one daemon");
}

struct seen {
	int n;
	bool running, stale, dirty;
};

static int see_env(void *arg, const struct ctl_env_info *e)
{
	struct seen *s = arg;

	s->n++;
	s->running |= e->running;
	s->stale |= e->stale;
	s->dirty |= e->dirty;
	return 0;
}

static void life(struct place *p)
{
	struct ctl_env_opts absent = {.data_dir = p->data, .env = "absent"},
			    passive = {.data_dir = p->data, .no_start = true};
	struct ctl *c = open_env(p, NULL), *x = NULL;
	struct ctl_status st;
	struct seen s = {0};
	struct diag d = {0};
	char text[64];
	int pid, r = 0;

	eq_int(put_file(c, "workspace/kept", "kept"), 0, "write");
	eq_int(ctl_flush(c, NULL), 0, "flush");
	pid = daemon_of(c);
	eq_int(ctl_env_list(p->data, &d, see_env, &s), 0, "list: %s", d.text);
	ok(s.n == 1 && s.running && !s.stale && s.dirty, "one, running, dirty");
	eq_int(kill(pid, SIGKILL), 0, "the daemon is killed");
	eq_int(ctl_status(c, &d, &st), -EPIPE, "the call fails");
	ctl_close(c);
	c = open_env(p, NULL);
	(void)get_file(c, "workspace/kept", text);
	eq_str(text, "kept", "the next one shows what was flushed");
	eq_int(put_file(c, "workspace/kept2", "kept2"), 0, "write, not flushed");
	eq_int(ctl_shutdown(c, false, &d), 0, "shutdown: %s", d.text);
	ctl_close(c);
	together(p);
	c = open_env(p, NULL);
	(void)get_file(c, "workspace/kept2", text);
	eq_str(text, "kept2", "an orderly end flushes");
	pid = daemon_of(c);
	ctl_close(c);
	eq_int(kill(pid, SIGTERM), 0, "SIGTERM");
	for (int i = 0; i < 500 && kill(pid, 0) == 0; i++)
		(void)usleep(10000);
	ok(kill(pid, 0) < 0, "ends it");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_open(&passive, &d, &x), -ECONNREFUSED, "none is started unasked: %s", d.text);
	eq_int(ctl_open(&absent, &d, &x), -ENOENT, "an unknown environment");
	s.running = true;
	/* Its keeper ends a moment after it. */
	for (int i = 0; i < 500 && s.running; i++) {
		memset(&s, 0, sizeof(s));
		r = ctl_env_list(p->data, NULL, see_env, &s);
		(void)usleep(s.running ? 10000 : 0);
	}
	eq_int(r, 0, "list");
	ok(s.n == 1 && !s.running && !s.stale, "nothing was left over");
	eq_int(ctl_env_remove(p->data, "default", false, &d), 0, "remove: %s", d.text);
	memset(&s, 0, sizeof(s));
	eq_int(ctl_env_list(p->data, NULL, see_env, &s), 0, "list");
	eq_int(s.n, 0, "none");
}

int main(void)
{
	struct place p;

	place_make(&p);
	first_use(&p);
	history(&p);
	checkpoints(&p);
	looking(&p);
	leases(&p);
	life(&p);
	place_remove(&p);
	return tap_done();
}
