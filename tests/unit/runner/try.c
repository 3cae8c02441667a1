/* Tries one thing that a sandbox is about and exits with its errno, 0 when it worked. Run on the host
 * and in the sandbox by test_confine.c. Not built with sanitizers: those make calls of their own. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int call(long r)
{
	return r < 0 ? errno : 0;
}

static int clone_with(unsigned long flags)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return errno;
	return waitpid((pid_t)pid, NULL, 0) < 0 ? errno : 0;
}

static int clone3_plain(void)
{
	struct clone_args a = {.exit_signal = SIGCHLD};
	long pid = syscall(SYS_clone3, &a, sizeof(a));

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return errno;
	return waitpid((pid_t)pid, NULL, 0) < 0 ? errno : 0;
}

static int trace_child(void)
{
	pid_t pid = fork();
	int r;

	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	r = call(ptrace(PTRACE_SEIZE, pid, 0, 0));
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return r;
}

static int open_flags(const char *path, int flags)
{
	int fd = open(path, flags, 0644);

	return fd < 0 ? errno : 0;
}

static int open_how(const char *path)
{
	struct {
		unsigned long long flags, mode, resolve;
	} how = {O_RDWR | O_CREAT, 0644, 0};

	return call(syscall(437, AT_FDCWD, path, &how, sizeof(how)));
}

static int connect_to(const char *port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return fd < 0 ? errno : call(connect(fd, (struct sockaddr *)&sa, sizeof(sa)));
}

static int prot_exec(void)
{
	void *p = mmap(NULL, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? errno : call(mprotect(p, 4096, PROT_READ | PROT_EXEC));
}

static int kill_to(const char *pid)
{
	return call(kill((pid_t)strtol(pid, NULL, 10), 0));
}

static int named(const char *what, const char *arg)
{
	int v = 0;

	if (!strcmp(what, "nothing"))
		return 0;
	if (!strcmp(what, "unshare-user"))
		return call(unshare(CLONE_NEWUSER));
	if (!strcmp(what, "clone-user"))
		return clone_with(CLONE_NEWUSER);
	if (!strcmp(what, "clone-plain"))
		return clone_with(0);
	if (!strcmp(what, "clone3"))
		return clone3_plain();
	if (!strcmp(what, "ptrace"))
		return trace_child();
	if (!strcmp(what, "userfaultfd"))
		return call(syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY));
	if (!strcmp(what, "io_uring"))
		return call(syscall(425, 1, NULL)); /* EFAULT when it is there */
	if (!strcmp(what, "keyctl"))
		return call(syscall(SYS_keyctl, 0, -3, 0)); /* the session keyring's id */
	if (!strcmp(what, "mount"))
		return call(mount("none", arg, "tmpfs", 0, NULL));
	if (!strcmp(what, "bpf"))
		return call(syscall(SYS_bpf, 0, NULL, 0)); /* EINVAL or EFAULT when let through */
	if (!strcmp(what, "unknown"))
		return call(syscall(1 << 20));
	if (!strcmp(what, "tiocsti")) /* ENOTTY on a pipe */
		return call(ioctl(0, TIOCSTI, "x"));
	if (!strcmp(what, "tiocsti-high"))
		return call(syscall(SYS_ioctl, 0, 0x100000000ul | TIOCSTI, "x"));
	if (!strcmp(what, "fionread"))
		return call(ioctl(0, FIONREAD, &v));
	if (!strcmp(what, "socket"))
		return call(socket(atoi(arg), SOCK_DGRAM, 0)); /* NOLINT */
	if (!strcmp(what, "connect"))
		return connect_to(arg);
	if (!strcmp(what, "create"))
		return open_flags(arg, O_WRONLY | O_CREAT);
	if (!strcmp(what, "write"))
		return open_flags(arg, O_WRONLY);
	if (!strcmp(what, "read"))
		return open_flags(arg, O_RDONLY);
	if (!strcmp(what, "openat2"))
		return open_how(arg);
	if (!strcmp(what, "chmod"))
		return call(chmod(arg, 0600));
	if (!strcmp(what, "mkdir"))
		return call(mkdir(arg, 0700));
	if (!strcmp(what, "fork"))
		return clone_with(0);
	if (!strcmp(what, "prot-exec"))
		return prot_exec();
	if (!strcmp(what, "kill"))
		return kill_to(arg);
	fprintf(stderr, "no such try: %s\n", what);
	return 254;
}

/* ---- calls by their numbers ---- */

static unsigned long argument(const char *word)
{
	static char buffer[8192];

	switch (word[0]) {
	case 'B':
		return (unsigned long)memset(buffer, 0, sizeof(buffer));
	case 'R':
		return (unsigned long)"/";
	case 'F':
		return (unsigned long)"there";
	case 'N':
		return (unsigned long)"p-new";
	case 'P':
		return (unsigned long)getpid();
	case 'U':
		return (unsigned long)getuid();
	default:
		return strtoul(word, NULL, 0);
	}
}

/* "NAME NUMBER ARGUMENT...": its errno, or its result where that is small. */
static long call_line(char *line)
{
	unsigned long a[7] = {0};
	char *save = NULL, *word;
	pid_t me = getpid();
	long r;
	int i;

	(void)strtok_r(line, " \n", &save);
	for (i = 0; i < 7 && (word = strtok_r(NULL, " \n", &save)); i++)
		a[i] = argument(word);
	r = syscall((long)a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
	if (getpid() != me)
		_exit(0);
	if (r < 0)
		return errno;
	return a[0] == SYS_sched_getaffinity ? 128 : 0;
}

/* Lines from standard input; with @apart each in a process of its own, whose death is an answer as well. */
static int calls(int apart)
{
	char line[256];
	int status;
	pid_t pid;

	while (fgets(line, sizeof(line), stdin)) {
		if (!apart) {
			printf("%ld\n", call_line(line));
			continue;
		}
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			printf("%ld\n", call_line(line));
			(void)fflush(stdout);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) < 0 || WIFSIGNALED(status))
			printf("died\n");
	}
	return 0;
}

int main(int argc, char **argv)
{
	/* For a runner that waits for somebody to serve. */
	while (argc == 1 && !strcmp(argv[0], "rattan-net"))
		(void)pause();
	if (argc < 2)
		return 254;
	if (!strncmp(argv[1], "calls", 5))
		return calls(argv[1][5] == '\0');
	return named(argv[1], argc > 2 ? argv[2] : "");
}
