/* The client against a real daemon: commands in an environment, a daemon that dies, binds, leases. */
#include "client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"

static const char *stage3;
static char top[] = "/var/tmp/rattan-test-XXXXXX", data_dir[64], host_dir[64];

/* The output of shell text in the environment; *ret_code -1 when it was not started. */
static const char *sh(struct client *c, const char *text, int *ret_code)
{
	static __thread char out[4096];
	struct buf head = {0}, tail = {0};
	struct client_run *cr = NULL;
	struct run_result res = {0};
	struct diag d = {{0}};
	struct run_spec s;
	uint64_t skipped;
	int r;

	run_spec_init(&s);
	s.shell = text;
	s.stage3 = stage3;
	s.timeout_ms = 60000;
	s.stderr_mode = RUN_STDERR_MERGED;
	r = client_run_start(c, NULL, &s, "a test", &d, &cr);
	if (r < 0) {
		(void)snprintf(out, sizeof(out), "%s", d.text);
		*ret_code = -1;
		return out;
	}
	out[0] = '\0';
	if (run_wait(client_run_of(cr), UINT64_MAX, &res) == 1 &&
	    run_output(client_run_of(cr), 0, &head, &tail, &skipped) == 0 && head.len)
		(void)snprintf(out, sizeof(out), "%s", (char *)head.data);
	if (res.state == RUN_NOT_STARTED)
		(void)snprintf(out, sizeof(out), "%s: %s", res.step, res.error);
	*ret_code = res.code;
	client_run_free(cr);
	buf_release(&head);
	buf_release(&tail);
	return out;
}

static int daemon_pid(struct client *c)
{
	struct ctl_status st;
	struct ctl *ctl = NULL;
	int pid = -1;

	if (client_ctl_get(c, NULL, &ctl) < 0)
		return -1;
	if (ctl_status(ctl, NULL, &st) == 0) {
		pid = st.daemon_pid;
		ctl_status_release(&st);
	}
	client_ctl_put(c, ctl, pid < 0);
	return pid;
}

static void test_commands(struct client *c)
{
	struct client_tree t;
	struct diag d = {{0}};
	struct stat st;
	const char *out;
	int code;

	eq_str(client_env(c), "default", "the name of the environment");
	ok(access(data_dir, F_OK) < 0, "nothing is made before the first call");
	out = sh(c, "pwd; id -u; echo hi > f; cat f", &code);
	eq_str(out, "/workspace\n1000\nhi\n", "a command in a new environment");
	eq_int(code, 0, "its code");
	out = sh(c, "cat f; echo x > /etc/f", &code);
	ok(!strncmp(out, "hi\n", 3) && code == 1,
	   "the next sees its file, and may not write to /etc: %s", out);
	eq_int(client_attach(c, NULL, "test", &d, &t), 0, "the root for file tools");
	eq_int(fstatat(t.at.root_fd, "workspace/f", &st, 0), 0, "shows the file");
	ok(t.at.writable[0] == '/', "and the writable places");
	client_detach(c, &t);
	out = sh(c, "cat /proc/self/mountinfo | grep -c rattan-test", &code);
	eq_str(out, "0\n", "no place of the host is named in the sandbox");
}

static void test_killed_daemon(struct client *c)
{
	int pid = daemon_pid(c), code;
	struct ctl *ctl = NULL;
	const char *out;

	ok(pid > 0, "a daemon runs");
	(void)sh(c, "echo kept > kept; sync kept", &code);
	eq_int(code, 0, "a file is synced");
	(void)kill(pid, SIGKILL);
	(void)usleep(300000);
	out = sh(c, "cat kept", &code);
	eq_str(out, "kept\n", "after kill -9 the next command starts a new daemon");
	eq_int(client_ctl_get(c, NULL, &ctl), 0, "and so does a control connection");
	client_ctl_put(c, ctl, false);
	ok(daemon_pid(c) != pid, "another one");
	(void)kill(daemon_pid(c), SIGKILL);
	(void)usleep(300000);
	ok(daemon_pid(c) > 0, "an idle connection whose daemon is dead is not handed out");
}

static bool is_up(struct run *r)
{
	struct buf head = {0}, tail = {0};
	uint64_t skipped;
	bool up = run_output(r, 0, &head, &tail, &skipped) == 0 && head.len > 0;

	buf_release(&head);
	buf_release(&tail);
	return up;
}

static int find_seen(void *arg, const char *path, char what)
{
	bool *seen = arg;

	(void)what;
	*seen |= !strcmp(path, "/workspace/seen");
	return 0;
}

static bool saw_change(struct ctl *ctl, uint64_t token)
{
	bool seen = false;
	uint64_t now = 0;

	return ctl_changes(ctl, token, NULL, &now, find_seen, &seen) == 0 && seen && now > token;
}

static void test_lease(struct client *c)
{
	struct client_run *cr = NULL;
	struct ctl_moved moved;
	struct run_result res;
	struct diag d = {{0}};
	struct ctl *ctl = NULL;
	struct run_spec s;

	run_spec_init(&s);
	s.shell = "echo x > seen; echo up; exec sleep 100";
	s.stage3 = stage3;
	eq_int(client_run_start(c, NULL, &s, "sleep", &d, &cr), 0, "a long command: %s", d.text);
	while (cr && !is_up(client_run_of(cr)) && run_wait(client_run_of(cr), 50, &res) == 0)
		;
	eq_int(client_ctl_get(c, &d, &ctl), 0, "beside it a connection");
	ok(saw_change(ctl, client_run_token(cr)), "what it changed is told from its start on");
	d.text[0] = '\0';
	eq_int(ctl_reset(ctl, false, &d, &moved), -EBUSY, "no reset under it: %s", d.text);
	eq_int(ctl_reset(ctl, true, &d, &moved), 0, "unless it is forced");
	eq_int(run_wait(client_run_of(cr), 20000, &res), 1, "which ends the command");
	eq_int(res.code, 137, "by SIGKILL");
	client_run_free(cr);
	d.text[0] = '\0';
	eq_int(ctl_undo(ctl, false, &d, &moved), 0, "afterwards nothing is in the way: %s", d.text);
	client_ctl_put(c, ctl, false);
}

static void test_binds(struct client *c)
{
	struct diag d = {{0}};
	const char *out;
	int code, fd = open(host_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	eq_int(client_add_bind(c, -1, "/no/such", "/workspace/b", false, &d), -EBADF,
	       "a directory that is not open");
	eq_int(client_add_bind(c, fd, host_dir, "/workspace/b", false, &d), 0, "one that is: %s",
	       d.text);
	out = sh(c, "cat b/host-file", &code);
	eq_str(out, "host\n", "is seen by commands");
	(void)sh(c, "echo x > b/new", &code);
	eq_int(code, 1, "and not written to");
	eq_int(client_add_bind(c, fd, host_dir, "/data/b", true, &d), 0, "one to write to: %s",
	       d.text);
	(void)sh(c, "echo y > /data/b/new && rm /data/b/new", &code);
	eq_int(code, 0, "also where nothing else is writable");
	(void)sh(c, "echo z > /data/z", &code);
	eq_int(code, 1, "but not beside it");
	d.text[0] = '\0';
	eq_int(client_remove_bind(c, "/data/b", &d), 0, "it is given up: %s", d.text);
	(void)sh(c, "test -e /data/b/host-file", &code);
	eq_int(code, 1, "and gone");
	eq_int(client_remove_bind(c, "/data/b", &d), -ENOENT, "once");
	out = sh(c, "cat b/host-file", &code);
	eq_str(out, "host\n", "the other one is still there");
	(void)kill(daemon_pid(c), SIGKILL);
	(void)usleep(300000);
	out = sh(c, "cat b/host-file", &code);
	eq_str(out, "host\n", "it is there again with a new daemon");
	(void)close(fd);
}

static void *many(void *arg)
{
	long bad = 0;
	int i, code;

	for (i = 0; i < 3; i++)
		bad += strcmp(sh(arg, "echo one", &code), "one\n") != 0 || code != 0;
	return (void *)bad;
}

static void test_threads(struct client *c)
{
	pthread_t t[3];
	void *bad;
	long all = 0;
	int i;

	for (i = 0; i < 3; i++) {
		if (pthread_create(&t[i], NULL, many, c) != 0)
			tap_fatal("thread");
	}
	for (i = 0; i < 3; i++) {
		(void)pthread_join(t[i], &bad);
		all += (long)bad;
	}
	eq_int(all, 0, "commands of three threads at once");
}

static void shut_down(struct client *c)
{
	struct ctl *ctl = NULL;
	struct diag d = {{0}};

	if (client_ctl_get(c, &d, &ctl) == 0) {
		eq_int(ctl_shutdown(ctl, true, &d), 0, "the daemon ends: %s", d.text);
		client_ctl_put(c, ctl, true);
	}
}

/* A writable place of which nothing is there: it can be made and used, and Landlock still knows what is not. */
static void test_missing_place(void)
{
	static const char *const all[] = {"/", NULL}, *const places[] = {"/newtop/in/it", "/tmp",
									 NULL};
	struct ctl_env_opts o = {
		.data_dir = data_dir, .env = "missing", .create = true, .writable = all};
	struct client *c = NULL;
	const char *out;
	int code;

	if (client_new(&o, &c) < 0)
		tap_fatal("client_new");
	out = sh(c, "echo x > /etc/ours && chmod 666 /etc/ours", &code);
	eq_int(code, 0, "a file that only the policy closes: %s", out);
	client_free(c);
	o.writable = places;
	if (client_new(&o, &c) < 0)
		tap_fatal("client_new");
	/* The first command finds nothing, the second what that made. */
	(void)sh(c, "exec 3<>/etc/ours", &code);
	ok(code != 0, "opening it for writing fails at once: %d", code);
	out = sh(c, "mkdir -p /newtop/in/it && echo x > /newtop/in/it/f && cat /newtop/in/it/f",
		 &code);
	eq_str(out, "x\n", "the place is made and used");
	(void)sh(c, "exec 3<>/etc/ours", &code);
	ok(code != 0, "and still that fails: %d", code);
	shut_down(c);
	client_free(c);
}

static void test_no_start(void)
{
	const struct ctl_env_opts o = {.data_dir = data_dir, .env = "other", .no_start = true};
	struct ctl *ctl = NULL;
	struct diag d = {{0}};
	struct client *c = NULL;

	if (client_new(&o, &c) < 0)
		tap_fatal("client_new");
	ok(client_ctl_get(c, &d, &ctl) < 0 && d.text[0], "no daemon and none wanted: %s", d.text);
	client_free(c);
}

int main(int argc, char **argv)
{
	const struct ctl_env_opts o = {.data_dir = data_dir, .create = true};
	struct client *c = NULL;
	char path[128];
	int fd;

	if (argc < 2)
		tap_fatal("usage: %s RATTAN-STAGE3", argv[0]);
	need_namespaces();
	stage3 = argv[1];
	if (!mkdtemp(top))
		tap_fatal("mkdtemp");
	(void)snprintf(data_dir, sizeof(data_dir), "%s/data", top);
	(void)snprintf(host_dir, sizeof(host_dir), "%s/host", top);
	(void)snprintf(path, sizeof(path), "%s/run", top);
	(void)mkdir(path, 0700);
	(void)setenv("XDG_RUNTIME_DIR", path, 1);
	(void)mkdir(host_dir, 0755);
	(void)snprintf(path, sizeof(path), "%s/host-file", host_dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, "host\n", 5) != 5)
		tap_fatal("%s", path);
	(void)close(fd);
	eq_int(client_new(&o, &c), 0, "a client");
	test_commands(c);
	test_killed_daemon(c);
	test_lease(c);
	test_binds(c);
	test_threads(c);
	shut_down(c);
	client_free(c);
	test_missing_place();
	test_no_start();
	(void)snprintf(path, sizeof(path), "rm -rf %s", top);
	(void)!system(path);
	return tap_done();
}
