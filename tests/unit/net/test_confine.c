/* net/confine.c: what rattan-net can do no more, and that it can still do its work. In a child each: it is for ever. */
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/confine.h"
#include "tests/lib/tap.h"

static int error_of(long r)
{
	return r < 0 ? errno : 0;
}

static int open_write(void)
{
	return error_of(open("/dev/null", O_WRONLY | O_CLOEXEC));
}

static int open_both(void)
{
	return error_of(open("here", O_RDWR | O_CLOEXEC));
}

static int open_make(void)
{
	return error_of(open("new", O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int open_cut(void)
{
	return error_of(open("here", O_RDONLY | O_TRUNC | O_CLOEXEC));
}

static int make_nameless(void)
{
	return error_of(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
}

static int make_directory(void)
{
	return error_of(mkdir("dir", 0700));
}

static int remove_file(void)
{
	return error_of(unlink("here"));
}

static int move_file(void)
{
	return error_of(rename("here", "there"));
}

/* The two that Landlock knows nothing of. */
static int change_mode(void)
{
	return error_of(chmod("here", 0777));
}

static int change_times(void)
{
	return error_of(utimensat(AT_FDCWD, "here", NULL, 0));
}

static int cut_file(void)
{
	return error_of(truncate("here", 0));
}

static int execute(void)
{
	char word[] = "true", *const argv[] = {word, NULL};

	return error_of(execv("/bin/true", argv));
}

static int signal_parent(void)
{
	return error_of(kill(getppid(), SIGCONT));
}

static int open_newer(void)
{
	const uint64_t how[3] = {O_WRONLY, 0, 0};

	return error_of(syscall(437, AT_FDCWD, "here", how, sizeof(how)));
}

static int read_file(void)
{
	char c;
	int fd = open("here", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? errno : read(fd, &c, 1) == 1 ? 0 : EIO;
}

static int list_directory(void)
{
	return error_of(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int inherited(void)
{
	return error_of(fcntl(9, F_GETFD));
}

static int dumpable(void)
{
	struct rlimit rl;

	return prctl(PR_GET_DUMPABLE) == 0 && getrlimit(RLIMIT_CORE, &rl) == 0 && rl.rlim_max == 0
		       ? 0
		       : EPERM;
}

static void *nothing(void *arg)
{
	return arg;
}

/* What its work needs: a thread, a socket, and the resolver with the files that it reads. */
static int work(void)
{
	struct addrinfo *list = NULL;
	pthread_t t;

	if (pthread_create(&t, NULL, nothing, NULL) != 0 || pthread_join(t, NULL) != 0)
		return ENOMEM;
	if (socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0)
		return errno;
	if (getaddrinfo("127.0.0.1", "80", NULL, &list) != 0)
		return EIO;
	freeaddrinfo(list);
	return 0;
}

static const struct {
	int (*what)(void);
	int error;
	const char *text;
} rows[] = {
	{open_write, EACCES, "opens nothing for writing"},
	{open_both, EACCES, "nor for both"},
	{open_make, EACCES, "makes no file"},
	{open_cut, EACCES, "empties none by opening"},
	{cut_file, EACCES, "nor by name"},
	{make_nameless, EACCES, "nor makes one without a name"},
	{make_directory, EACCES, "makes no directory"},
	{remove_file, EACCES, "removes nothing"},
	{move_file, EACCES, "moves nothing"},
	{change_mode, EACCES, "changes no mode"},
	{change_times, EACCES, "nor times"},
	{open_newer, ENOSYS, "opens nothing in a way that no filter sees"},
	{execute, EACCES, "executes nothing"},
	{signal_parent, EACCES, "signals nobody"},
	{inherited, EBADF, "has none of the caller's descriptors"},
	{dumpable, 0, "is not looked at, and leaves no core"},
	{read_file, 0, "reads files"},
	{list_directory, 0, "and directories"},
	{work, 0, "and does its work"},
};

static int in_child(int (*what)(void))
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)dup2(STDOUT_FILENO, 9);
		_exit(confine(8) < 0 ? 250 : what());
	}
	(void)waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 251;
}

int main(void)
{
	char dir[] = "/tmp/rattan-confine.XXXXXX";
	FILE *f;

	if (!mkdtemp(dir) || chdir(dir) < 0)
		tap_fatal("no directory");
	f = fopen("here", "w");
	if (!f || fputs("x", f) < 0 || fclose(f) != 0)
		tap_fatal("no file");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		eq_int(in_child(rows[i].what), rows[i].error, "%s", rows[i].text);
	(void)unlink("here");
	ok(chdir("/") == 0 && rmdir(dir) == 0, "and nothing was left there");
	return tap_done();
}
