/* What a command may not do, each beside the same thing where it may. argv[2] is the program "try". */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/runner/rig.h"

static const char *try_path;
static struct rig_out o;

/* The errno of a try without a sandbox; 1000 + signal when it died. */
static int outside(const char *what, const char *arg)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)execl(try_path, "try", what, arg, (char *)NULL);
		_exit(253);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 253;
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int inside(const char *promises, const char *what, const char *arg)
{
	const char *const argv[] = {try_path, what, arg, NULL};
	struct run_spec s;

	rig_spec(&s);
	s.argv = argv;
	s.promises = promises;
	rig_run(&s, &o);
	if (o.res.state == RUN_NOT_STARTED) {
		printf("# %s: %s\n", o.res.step, o.res.error);
		return 252;
	}
	return o.res.state == RUN_SIGNALED ? 1000 + o.res.signal : o.res.code;
}

#define ANY -1 /* whatever, but not what the sandbox says */

static void test_always(void)
{
	static const struct {
		const char *what, *arg;
		int outside, inside;
	} rows[] = {
		{"nothing", "", 0, 0},
		{"clone-plain", "", 0, 0},
		{"unshare-user", "", 0, EPERM},
		{"clone-user", "", 0, EPERM},
		{"clone3", "", 0, ENOSYS},
		{"ptrace", "", ANY, EPERM},
		{"userfaultfd", "", ANY, EPERM},
		{"keyctl", "", ANY, EPERM},
		{"io_uring", "", ANY, ENOSYS},
		{"unknown", "", ENOSYS, ENOSYS},
		{"tiocsti", "", ANY, EPERM},
		{"tiocsti-high", "", ANY, EPERM},
		{"fionread", "", ANY, ENOTTY}, /* let through to /dev/null */
		{"socket", "1", 0, 0},
		{"socket", "2", 0, 0},
		{"socket", "10", ANY, 0},
		{"socket", "16", 0, 0},
		{"socket", "40", ANY, EAFNOSUPPORT},
		{"socket", "38", ANY, EAFNOSUPPORT},
		{"socket", "17", ANY, EAFNOSUPPORT},
		{"prot-exec", "", 0, 0},
	};
	size_t i;
	int r;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		r = outside(rows[i].what, rows[i].arg);
		if (rows[i].outside != ANY)
			eq_int(r, rows[i].outside, "outside: %s %s", rows[i].what, rows[i].arg);
		eq_int(inside(NULL, rows[i].what, rows[i].arg), rows[i].inside, "inside: %s %s",
		       rows[i].what, rows[i].arg);
	}
}

/* Its flags are in memory, where no filter sees them: whole, or not there. */
static void test_openat2(void)
{
#define BASE "stdio rpath prot_exec exec "
	eq_int(inside(BASE "wpath cpath", "openat2", "p-how"), 0, "openat2 with wpath and cpath");
	(void)unlink("p-how");
	eq_int(inside(BASE "wpath", "openat2", "p-how"), ENOSYS, "and without one of them");
	eq_int(inside(BASE "cpath", "openat2", "p-how"), ENOSYS, "or the other");
}

static void test_network(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char port[16];

	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, n) < 0 || listen(fd, 5) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
		tap_fatal("no listening socket");
	(void)snprintf(port, sizeof(port), "%u", ntohs(sa.sin_port));
	eq_int(outside("connect", port), 0, "a server on the host's loopback answers the host");
	eq_int(inside(NULL, "connect", port), ECONNREFUSED, "and not the sandbox (R5)");
	(void)close(fd);
	rig_shell("while read -r k v; do case $k in Inter-*|face*|lo:*) ;; *) echo $k;; esac; done "
		  "< /proc/net/dev",
		  &o);
	eq_str(o.out, "", "no interface but loopback");
}

static void test_files(void)
{
	char out[] = "/tmp/rattan-other-XXXXXX", path[64];
	const char *const exec_here[] = {"./copy", "nothing", NULL};
	struct run_spec s;

	if (!mkdtemp(out))
		tap_fatal("mkdtemp");
	(void)snprintf(path, sizeof(path), "%s/f", out);
	eq_int(outside("create", path), 0, "a file outside of the writable places, on the host");
	(void)unlink(path);
	if (syscall(444, NULL, 0, 1) > 0)
		eq_int(inside(NULL, "create", path), EACCES, "and not in the sandbox");
	eq_int(inside(NULL, "create", "mine"), 0, "a file in the writable place");
	eq_int(inside(NULL, "create", "/dev/shm/x"), 0, "a file in /dev/shm");
	ok(access("/dev/shm/x", F_OK) < 0, "which is not the host's");
	eq_int(inside(NULL, "write", "/dev/null"), 0, "/dev/null");
	rig_shell("echo 600 > /proc/self/oom_score_adj; echo x > /dev/stdout; echo y > "
		  "/dev/stderr; [ -e /dev/sda ] || echo none",
		  &o);
	eq_str(o.out, "x\nnone\n", "/proc and /dev/stdout can be written, no disk is there");
	eq_str(o.err, "y\n", "/dev/stderr");

	rig_shell("true", &o);
	if (strstr(o.res.enforced, "landlock")) {
		char text[256];

		(void)snprintf(text, sizeof(text), "cp '%s' copy; chmod 755 copy", try_path);
		rig_shell(text, &o);
		rig_spec(&s);
		s.argv = exec_here;
		rig_run(&s, &o);
		eq_int(o.res.code, 0, "a program in the writable place runs");
		s.no_exec_workspace = true;
		rig_run(&s, &o);
		eq_int(o.res.code, 126, "and with no_exec_workspace does not");
		s.argv = NULL;
		s.shell = "ls > /dev/null && echo fine";
		rig_run(&s, &o);
		eq_str(o.out, "fine\n", "while the system's programs do");
	}
	(void)rmdir(out);
}

/* What held is part of the result. */
static void test_enforced(void)
{
	static const char *const held[] = {"userns", "mntns",        "pidns",   "netns",  "ipcns",
					   "utsns",  "no_new_privs", "rlimits", "seccomp"};
	long abi = syscall(444, NULL, 0, 1);
	char want[64];
	size_t i;
	struct run_spec s;

	rig_shell("true", &o);
	for (i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		ok(strstr(o.res.enforced, held[i]), "what held has %s: %s", held[i],
		   o.res.enforced);
	(void)snprintf(want, sizeof(want), ",landlock:%ld%s", abi, abi < 6 ? "(no" : "");
	if (abi > 0)
		ok(strstr(o.res.enforced, want) && (abi < 6 || !strstr(o.res.enforced, "(no")),
		   "and Landlock with its ABI");
	ok(!strstr(o.res.enforced, "landlock_tcp"), "TCP is for who may use it");
	rig_spec(&s);
	s.shell = "true";
	s.promises = "stdio rpath wpath cpath tty proc exec prot_exec unix";
	rig_run(&s, &o);
	if (abi >= 4)
		ok(strstr(o.res.enforced, "landlock_tcp"), "and not for others: %s",
		   o.res.enforced);
	s.promises = NULL;
	s.require_landlock = true;
	rig_run(&s, &o);
	if (abi >= 6)
		eq_int(o.res.code, 0, "all of Landlock is required, and there");
	else
		eq_str(o.res.step, "landlock", "all of Landlock is required, and not there");
}

static void test_init(void)
{
	eq_int(inside(NULL, "kill", "1"), EPERM, "init takes no signal of the command's");
	eq_int(inside(NULL, "read", "/proc/1/environ"), EACCES, "nor shows its environment");
	eq_int(inside(NULL, "read", "/proc/1/mem"), EACCES, "nor its memory");
	eq_int(inside(NULL, "read", "/proc/self/mem"), 0, "as one's own is shown");
}

static void test_limits(void)
{
	struct run_spec s;

	rig_shell("ulimit -c; ulimit -n >/dev/null && echo n", &o);
	eq_str(o.out, "0\nn\n", "no core files");
	rig_spec(&s);
	s.limits.file_size = 1 << 20;
	s.shell =
		"head -c 500000 /dev/zero > a && echo one; head -c 5000000 /dev/zero > b; echo $?";
	rig_run(&s, &o);
	eq_str(o.out, "one\n153\n", "a file within the limit, and one beyond (SIGXFSZ)");
	rig_spec(&s);
	s.limits.cpu_s = 1;
	s.shell = "while :; do :; done";
	rig_run(&s, &o);
	ok(o.res.state == RUN_SIGNALED && !o.res.timed_out, "processor time ends (signal %d)",
	   o.res.signal);
	rig_spec(&s);
	s.limits.processes = 40;
	s.shell = "i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null; "
		  "jobs -p | wc -l";
	if (geteuid() == 0) {
		ok(1, "the kernel does not count root's processes # SKIP");
	} else {
		rig_run(&s, &o);
		ok(strtol(o.out, NULL, 10) < 41, "a hundred processes under a limit of 40: %s",
		   o.out);
		s.limits.processes = 0;
		rig_run(&s, &o);
		eq_str(o.out, "100\n", "and without");
	}
}

int main(int argc, char **argv)
{
	rig_setup(argc, argv);
	if (argc < 3)
		tap_fatal("usage: %s RATTAN-STAGE3 TRY", argv[0]);
	try_path = argv[2];
	test_always();
	test_openat2();
	test_network();
	test_files();
	test_enforced();
	test_init();
	test_limits();
	rig_end();
	return tap_done();
}
