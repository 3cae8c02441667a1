/*
 * Landlock: for each right the thing that it is about, granted, not granted, and where the kernel does not have the
 * right (when it is not handled); then rules that go around places, and what a plan may require.
 */
#include "stage3/landlock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <termios.h>

#include "tests/lib/tap.h"
#include "tests/unit/stage3/child.h"

static char top[] = "/tmp/rattan-test-XXXXXX";
static int here_abi;
static char abstract[32];

/* ---- the things ---- */

static int result(long r)
{
	return r < 0 ? errno : 0;
}

static int opens(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd < 0)
		return errno;
	(void)close(fd);
	return 0;
}

static int do_execute(void)
{
	char *argv[] = {NULL, NULL}, *envp[] = {NULL}, path[] = "in/empty";

	argv[0] = path;
	(void)execve(path, argv, envp);
	return errno == ENOEXEC ? 0 : errno;
}

static int do_write(void)
{
	return opens("in/file", O_WRONLY);
}

static int do_read(void)
{
	return opens("in/file", O_RDONLY);
}

static int do_read_dir(void)
{
	return opens("in/dir", O_RDONLY | O_DIRECTORY);
}

static int do_remove_dir(void)
{
	return result(rmdir("in/empty-dir"));
}

static int do_remove_file(void)
{
	return result(unlink("in/file"));
}

/* Device nodes are refused to who has no capabilities, and what is asked here is earlier. */
static int make_node(mode_t type, dev_t dev)
{
	int r = result(mknod("in/node", type | 0600, dev));

	return r == EPERM ? 0 : r;
}

static int do_make_char(void)
{
	return make_node(S_IFCHR, makedev(1, 3));
}

static int do_make_block(void)
{
	return make_node(S_IFBLK, makedev(7, 0));
}

static int do_make_reg(void)
{
	return make_node(S_IFREG, 0);
}

static int do_make_sock(void)
{
	return make_node(S_IFSOCK, 0);
}

static int do_make_fifo(void)
{
	return make_node(S_IFIFO, 0);
}

static int do_make_dir(void)
{
	return result(mkdir("in/node", 0700));
}

static int do_make_sym(void)
{
	return result(symlink("/", "in/node"));
}

static int do_refer(void)
{
	return result(rename("in/file", "in/dir/file"));
}

static int do_truncate(void)
{
	return result(truncate("in/file", 0));
}

static int do_ioctl_dev(void)
{
	struct termios t;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC), r;

	if (fd < 0)
		return 250;
	r = result(ioctl(fd, TCGETS, &t));
	(void)close(fd);
	return r == ENOTTY ? 0 : r;
}

static int tcp(int (*call)(int, const struct sockaddr *, socklen_t))
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (call == connect)
		sa.sin_port = htons(1);
	if (fd < 0)
		return 250;
	r = result(call(fd, (struct sockaddr *)&sa, sizeof(sa)));
	(void)close(fd);
	return r == ECONNREFUSED ? 0 : r;
}

static int do_bind_tcp(void)
{
	return tcp(bind);
}

static int do_connect_tcp(void)
{
	return tcp(connect);
}

static socklen_t abstract_address(struct sockaddr_un *sa)
{
	*sa = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(sa->sun_path + 1, abstract, strlen(abstract));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(abstract));
}

static int do_scope_unix(void)
{
	struct sockaddr_un sa;
	socklen_t n = abstract_address(&sa);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return 250;
	r = result(connect(fd, (struct sockaddr *)&sa, n));
	(void)close(fd);
	return r;
}

static int do_scope_signal(void)
{
	return result(kill(getppid(), 0));
}

/* ---- each right ---- */

static const struct right {
	uint32_t bit;
	int abi;
	const char *name;
	int (*what)(void);
	int refused;
} rights[] = {
	{STAGE3_EXECUTE, 1, "execute", do_execute, EACCES},
	{STAGE3_WRITE_FILE, 1, "write_file", do_write, EACCES},
	{STAGE3_READ_FILE, 1, "read_file", do_read, EACCES},
	{STAGE3_READ_DIR, 1, "read_dir", do_read_dir, EACCES},
	{STAGE3_REMOVE_DIR, 1, "remove_dir", do_remove_dir, EACCES},
	{STAGE3_REMOVE_FILE, 1, "remove_file", do_remove_file, EACCES},
	{STAGE3_MAKE_CHAR, 1, "make_char", do_make_char, EACCES},
	{STAGE3_MAKE_DIR, 1, "make_dir", do_make_dir, EACCES},
	{STAGE3_MAKE_REG, 1, "make_reg", do_make_reg, EACCES},
	{STAGE3_MAKE_SOCK, 1, "make_sock", do_make_sock, EACCES},
	{STAGE3_MAKE_FIFO, 1, "make_fifo", do_make_fifo, EACCES},
	{STAGE3_MAKE_BLOCK, 1, "make_block", do_make_block, EACCES},
	{STAGE3_MAKE_SYM, 1, "make_sym", do_make_sym, EACCES},
	{STAGE3_REFER, 2, "refer", do_refer, EXDEV},
	{STAGE3_TRUNCATE, 3, "truncate", do_truncate, EACCES},
	{STAGE3_BIND_TCP, 4, "bind_tcp", do_bind_tcp, EACCES},
	{STAGE3_CONNECT_TCP, 4, "connect_tcp", do_connect_tcp, EACCES},
	{STAGE3_IOCTL_DEV, 5, "ioctl_dev", do_ioctl_dev, EACCES},
	{STAGE3_SCOPE_UNIX, 6, "scope_unix", do_scope_unix, EPERM},
	{STAGE3_SCOPE_SIGNAL, 6, "scope_signal", do_scope_signal, EPERM},
};
#define NRIGHTS (sizeof(rights) / sizeof(rights[0]))

static void touch(const char *path, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	if (fd < 0)
		tap_fatal("cannot write %s", path);
	(void)close(fd);
}

/* The same every time, whatever the last one did to it. */
static void furnish(void)
{
	(void)unlink("in/node");
	(void)rmdir("in/node");
	(void)unlink("in/dir/file");
	(void)mkdir("in/dir", 0755);
	(void)mkdir("in/empty-dir", 0755);
	touch("in/file", 0644);
	touch("in/empty", 0755);
}

static int (*what_now)(void);

static int confined(const struct plan *plan)
{
	struct landlock l;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || landlock_apply(plan, &l) < 0)
		return 200;
	if (l.abi != here_abi || l.handled != (plan->handled & landlock_handled(here_abi)))
		return 201;
	return what_now();
}

static int unconfined(const struct plan *plan)
{
	(void)plan;
	return what_now();
}

/* What succeeds here without a ruleset; in a sandbox of ours, its own Landlock refuses some already. */
static int outside(void)
{
	int r = child(unconfined, NULL);

	ok(r == 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "outside");
	return r;
}

static void test_right(const struct right *right)
{
	char in[64], dev[] = "/dev";
	int allowed;
	struct stage3_rule rules[2] = {{.rights = STAGE3_RIGHTS_FS}, {.rights = STAGE3_RIGHTS_FS}};
	char *paths[] = {in, dev};
	struct plan plan = {
		.handled = right->bit, .rules = rules, .rule_paths = paths, .nrules = 2};

	(void)snprintf(in, sizeof(in), "%s/in", top);
	what_now = right->what;
	furnish();
	allowed = outside();
	if (right->bit & STAGE3_RIGHTS_FS) {
		furnish();
		eq_int(child(confined, &plan), allowed, "%s: granted", right->name);
	}
	furnish();
	rules[0].rights &= ~right->bit;
	rules[1].rights &= ~right->bit;
	plan.handled = STAGE3_RIGHTS_FS | right->bit;
	eq_int(child(confined, &plan), right->refused, "%s: not granted", right->name);
	furnish();
	plan.handled = STAGE3_RIGHTS_ALL & ~right->bit;
	/* A move between directories is refused by every ruleset, handled or not. */
	eq_int(child(confined, &plan), right->bit == STAGE3_REFER ? EXDEV : allowed,
	       "%s: not handled", right->name);
}

static void test_rights(void)
{
	uint32_t all = 0;
	size_t i;
	int abi;

	for (i = 0; i < NRIGHTS; i++) {
		all |= rights[i].bit;
		for (abi = 0; abi < 9; abi++) {
			if (!!(landlock_handled(abi) & rights[i].bit) != (abi >= rights[i].abi))
				break;
		}
		eq_int(abi, 9, "%s came with ABI %d", rights[i].name, rights[i].abi);
		if (rights[i].abi <= here_abi)
			test_right(&rights[i]);
		else
			ok(1, "%s is not in this kernel # SKIP", rights[i].name);
	}
	eq_int(all, STAGE3_RIGHTS_ALL, "every right has a row");
	eq_int(landlock_handled(99), STAGE3_RIGHTS_ALL, "a later ABI has no less");
}

/* ---- rules that go around, places that may miss ---- */

static int do_write_in(void)
{
	return opens("in/file", O_WRONLY);
}

static int do_execute_out(void)
{
	char *argv[] = {NULL, NULL}, *envp[] = {NULL}, path[] = "out/empty";

	argv[0] = path;
	(void)execve(path, argv, envp);
	return errno == ENOEXEC ? 0 : errno;
}

static int try_with(const struct plan *plan, int (*what)(void))
{
	furnish();
	what_now = what;
	return child(confined, plan);
}

static void test_around(void)
{
	static const struct stage3_rule rules[] = {
		{STAGE3_READ_FILE | STAGE3_READ_DIR, 0},
		{STAGE3_EXECUTE, STAGE3_RULE_AROUND},
		{STAGE3_RIGHTS_FS & ~STAGE3_EXECUTE, STAGE3_RULE_HOLE}};
	char root[] = "/", in[64];
	char *paths[] = {root, root, in};
	struct plan plan = {
		.handled = STAGE3_RIGHTS_FS, .rules = rules, .rule_paths = paths, .nrules = 3};

	(void)snprintf(in, sizeof(in), "%s/in", top);
	touch("out/empty", 0755);
	eq_int(try_with(&plan, do_execute_out), 0, "a program runs from beside the hole");
	eq_int(try_with(&plan, do_execute), EACCES, "and not from the hole");
	eq_int(try_with(&plan, do_write_in), 0, "which is writable");
	/* By its other name. */
	(void)snprintf(in, sizeof(in), "%s/link", top);
	eq_int(try_with(&plan, do_execute), EACCES,
	       "a hole named through a link is the same place");
}

static void test_missing(void)
{
	static const struct stage3_rule rules[] = {{STAGE3_RIGHTS_FS, STAGE3_RULE_MAY_MISS},
						   {STAGE3_RIGHTS_FS, 0}};
	char in[64], miss[] = "/nonexistent-place";
	char *paths[] = {miss, in};
	struct plan plan = {
		.handled = STAGE3_RIGHTS_FS, .rules = rules, .rule_paths = paths, .nrules = 2};

	(void)snprintf(in, sizeof(in), "%s/in", top);
	eq_int(try_with(&plan, do_write_in), 0, "a place that may miss is left out");
	paths[1] = miss;
	eq_int(try_with(&plan, do_write_in), 200, "one that must exist and does not ends it");
}

/* ---- what is required ---- */

/* As a kernel that has no Landlock. */
static int without(const struct plan *plan)
{
	static struct sock_filter none[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 444, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = 4, .filter = none};
	struct landlock l;
	int r;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		return 200;
	r = landlock_apply(plan, &l);
	return r < 0 ? -r : (int)(l.abi + l.handled);
}

static int required(const struct plan *plan)
{
	struct landlock l;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return 200;
	return -landlock_apply(plan, &l);
}

static void test_required(void)
{
	struct plan plan = {.handled = STAGE3_RIGHTS_ALL};
	size_t i;

	eq_int(child(without, &plan), 0,
	       "without Landlock a plan goes on, and says that nothing is handled");
	plan.required = STAGE3_EXECUTE;
	eq_int(child(without, &plan), EOPNOTSUPP, "but not one that requires a right");
	for (i = 0; i < NRIGHTS; i++) {
		plan.required = rights[i].bit;
		eq_int(child(required, &plan), rights[i].abi <= here_abi ? 0 : EOPNOTSUPP,
		       "required: %s", rights[i].name);
	}
}

static int listen_abstract(void)
{
	struct sockaddr_un sa;
	socklen_t n;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(abstract, sizeof(abstract), "rattan-%d", getpid());
	n = abstract_address(&sa);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, n) < 0 || listen(fd, 64) < 0)
		tap_fatal("no abstract socket");
	return fd;
}

int main(void)
{
	char cmd[128];
	int fd;

	here_abi = (int)syscall(444, NULL, 0, 1);
	here_abi = here_abi < 0 ? 0 : here_abi;
	if (!mkdtemp(top) || chdir(top) < 0 || mkdir("in", 0755) < 0 || mkdir("out", 0755) < 0 ||
	    symlink("in", "link") < 0)
		tap_fatal("cannot make %s", top);
	fd = listen_abstract();
	test_rights();
	if (here_abi > 0) {
		test_around();
		test_missing();
	}
	test_required();
	(void)close(fd);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	(void)!system(cmd); /* NOLINT: a name that we made */
	return tap_done();
}
