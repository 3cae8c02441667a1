/* A child that holds an LMDB snapshot: LMDB on damaged pages may loop, abort or crash, and does it there. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "store/fsck_internal.h"

#define WAIT_MS 120000 /* a writer may hold the lock for a while */

struct answer {
	int r;
	uint64_t txn[2];
	struct diag diag;
};

/* With the writer lock of meta held, a collector cannot take a chunk between the two. */
static int begin(struct store *s, MDB_txn *t[static 2])
{
	MDB_env *envs[2] = {s->meta.env, s->chunks.env};
	cleanup_tx MDB_txn *w = NULL;
	int rc = mdb_txn_begin(s->meta.env, NULL, 0, &w);

	for (int i = 0; i < 2 && rc == 0; i++)
		rc = t[i] ? mdb_txn_renew(t[i]) : mdb_txn_begin(envs[i], NULL, MDB_RDONLY, &t[i]);
	return store_lm_err(rc);
}

static void child(const char *dir, int sock)
{
	const struct rlimit no_core = {0, 0};
	struct answer a = {0};
	MDB_txn *t[2] = {NULL, NULL};
	struct store *s = NULL;
	char c;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setrlimit(RLIMIT_CORE, &no_core);
	for (int sig = 1; sig < 32; sig++)
		(void)signal(sig, SIG_DFL);
	a.r = store_open(dir, STORE_BARE, &a.diag, &s);
	for (;;) {
		if (a.r == 0)
			a.r = begin(s, t);
		for (int i = 0; i < 2 && a.r == 0; i++)
			a.txn[i] = mdb_txn_id(t[i]);
		if (send(sock, &a, sizeof(a), MSG_NOSIGNAL) != (ssize_t)sizeof(a) ||
		    io_read_full(sock, &c, 1) != 1)
			break;
		for (int i = 0; i < 2; i++)
			if (t[i])
				mdb_txn_reset(t[i]);
	}
	for (int i = 0; i < 2; i++)
		if (t[i])
			mdb_txn_abort(t[i]);
	store_close(s);
	_exit(0);
}

/* Its answer, or its death. */
static int hear(struct fsck_pin *p, struct answer *a)
{
	struct pollfd pf = {.fd = p->sock, .events = POLLIN};
	int status = 0, n;

	do
		n = poll(&pf, 1, WAIT_MS);
	while (n < 0 && errno == EINTR);
	if (n > 0 && io_read_full(p->sock, a, sizeof(*a)) == (ssize_t)sizeof(*a))
		return 0;
	if (n <= 0)
		(void)kill(p->pid, SIGKILL);
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
		;
	p->sig = n <= 0 ? SIGALRM : WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	p->pid = 0;
	p->dead = true;
	return -EBADMSG;
}

int fsck_pin_start(struct fsck_pin *p, const char *dir, struct diag *diag)
{
	int sv[2], r = 0;
	struct answer a;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return ret_nerrno();
	pid = fork();
	if (pid < 0)
		r = ret_nerrno();
	if (pid == 0) {
		(void)close(sv[0]);
		child(dir, sv[1]);
	}
	(void)close(sv[1]);
	*p = (struct fsck_pin){.pid = pid, .sock = sv[0]};
	if (r == 0 && hear(p, &a) == 0 && a.r < 0) {
		/* That it is damaged will be seen; other reasons end it. */
		p->dead = a.r == -EBADMSG || a.r == -EPROTONOSUPPORT || a.r == -EROFS;
		r = p->dead ? 0
			    : diag_set(diag, a.r, "%s",
				       a.diag.text[0] ? a.diag.text : err_text(a.r));
	}
	if (r < 0)
		fsck_pin_end(p);
	return r;
}

void fsck_pin_end(struct fsck_pin *p)
{
	if (p->sock > 0)
		(void)close(p->sock);
	if (p->pid > 0)
		while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
			;
	*p = (struct fsck_pin){0};
}

int fsck_pin_renew(struct fsck_pin *p, uint64_t ret_txn[static 2])
{
	struct answer a;
	int r;

	if (p->dead) {
		ret_txn[0] = ret_txn[1] = PAGES_NEWEST;
		return 0;
	}
	(void)!send(p->sock, "n", 1, MSG_NOSIGNAL); /* dead: hear() sees it */
	r = hear(p, &a);
	if (p->dead || r == 0)
		r = p->dead ? 0 : a.r;
	ret_txn[0] = p->dead ? PAGES_NEWEST : a.txn[0];
	ret_txn[1] = p->dead ? PAGES_NEWEST : a.txn[1];
	return r;
}
