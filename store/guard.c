#include "store/guard.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "store/store.h"

_Thread_local struct store_guard *store_guard_now;

static void say(const char *s)
{
	(void)!write(STDERR_FILENO, s, strlen(s));
}

/* Only what a signal handler may do. */
static void on_fault(int sig, siginfo_t *info, void *ctx)
{
	(void)info;
	(void)ctx;
	if (store_guard_now)
		siglongjmp(store_guard_now->at, 1);
	say(sig == SIGBUS
		    ? "rattan-fs: a page of the store could not be read (SIGBUS): the disk, or the "
		      "store, is damaged; run rattan fsck\n"
		    : "rattan-fs: ended by SIGSEGV or SIGFPE: a defect, or a damaged store; run rattan fsck\n");
	(void)signal(sig, SIG_DFL);
	(void)raise(sig);
}

void store_contain_damage(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};

	sigemptyset(&sa.sa_mask);
	(void)sigaction(SIGSEGV, &sa, NULL);
	(void)sigaction(SIGBUS, &sa, NULL);
	(void)sigaction(SIGFPE, &sa, NULL);
}

static void on_assert(MDB_env *env, const char *msg)
{
	(void)env;
	if (store_guard_now)
		siglongjmp(store_guard_now->at, 1);
	log_error("LMDB met a damaged page (%s): run rattan fsck", msg);
}

void store_guard_env(MDB_env *env)
{
	(void)mdb_env_set_assert(env, on_assert);
}
